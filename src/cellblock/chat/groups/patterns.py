"""Patterns: AG2's group chats, in which agents hand off to each other.

The names are those of `autogen.agentchat.group`. The data of handoffs is in `handoffs`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from ..agent import Agent, ChatMessage, Reply
from ..conversable_agent import ConversableAgent
from ..conversations.chat_result import ChatResult
from ..conversations.run_response import AsyncRunResponse, RunResponse
from ..conversations.summaries import SummaryMethod
from ..handoffs import (
    AgentTarget,
    AskUserTarget,
    GroupManagerTarget,
    NestedChatTarget,
    OnCondition,
    OnContextCondition,
    RandomAgentTarget,
    ReplyResult,
    SelectionMessage,
    TerminateTarget,
    TransitionTarget,
)
from ..steps import Step, Steps, asynchronous, synchronous
from ..tools.context_variables import PARAMETER, ContextVariables
from ..tools.function_arguments import load_basemodels_if_needed
from ..tools.function_schema import JsonSchema, get_function_schema
from ..tools.function_signature import is_async_function
from .group_chat import GroupChat
from .group_chat_manager import GroupChatManager

_TOOL_EXECUTOR = "_Group_Tool_Executor"
_USER = "_User"
_WRAPPED = "wrapped_"
_NO_MODEL = (
    "The group manager doesn't have an LLM Config and it is required for any targets or after "
    "works using a GroupManagerTarget. Use the 'llm_config' in the group_manager_args parameter "
    "to specify the LLM Config for the group manager."
)
Messages = Sequence[ChatMessage] | str


class GroupToolExecutor(ConversableAgent):
    """Runs the functions of all agents of a group, and keeps the target of a handoff."""

    def __init__(self) -> None:
        super().__init__(
            _TOOL_EXECUTOR,
            "Tool Execution, do not use this agent directly.",
            human_input_mode="NEVER",
            llm_config=False,
        )
        self._next_target: TransitionTarget | None = None

    def set_next_target(self, target: TransitionTarget) -> None:
        """Let `target` say who speaks next."""
        self._next_target = target

    def take_next_target(self) -> TransitionTarget | None:
        """Return the target, if there is one, and forget it."""
        target, self._next_target = self._next_target, None
        return target

    def execute_for(self, name: str, function: Callable[..., Any]) -> None:
        """Execute `function` by this name, with the context variables if it has the parameter."""
        call = load_basemodels_if_needed(function)
        has_context = PARAMETER in inspect.signature(function).parameters

        def with_context(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            return {**arguments, PARAMETER: self.context_variables} if has_context else arguments

        async def execute_async(**arguments: Any) -> str:
            return self._read_result(await call(**with_context(arguments)))

        def execute(**arguments: Any) -> str:
            return self._read_result(call(**with_context(arguments)))

        self.function_map[name] = execute_async if is_async_function(function) else execute

    def _read_result(self, result: Any) -> str:
        """Obey what a function returned, and return its text."""
        target = result if isinstance(result, TransitionTarget) else None
        if isinstance(result, ReplyResult):
            self.context_variables.update(result.context_variables or {})
            target = result.target
        if target is not None:
            self._next_target = target
        return str(result)


class PatternChat:
    """The group chat of a pattern, and what chooses who speaks next in it.

    members     the agents between which the user and the executor of the functions speak
    transfers   the names of the functions that hand off
    """

    def __init__(
        self,
        pattern: Pattern,
        members: Sequence[ConversableAgent],
        opener: ConversableAgent | None,
        max_rounds: int,
    ) -> None:
        self.pattern = pattern
        self.executor = GroupToolExecutor()
        self.transfers = set[str]()
        self._has_begun = False
        self._members = {agent.name: agent for agent in members}
        others = [agent for agent in (pattern.user_agent, opener) if agent is not None]
        self.everyone = list(dict.fromkeys([self.executor, *members, *others]))
        agents = cast(list[Agent], self.everyone)
        self.groupchat = GroupChat(agents, [], max_rounds, speaker_selection_method=self._choose)
        visible = [agent for agent in agents if self._is_visible(agent)]
        self.groupchat.allowed_speaker_transitions_dict = dict.fromkeys(agents, visible)
        self.manager = pattern.manager_of(self.groupchat)

    def _is_visible(self, agent: Agent) -> bool:
        """Return True if a model or a person can choose `agent`."""
        hidden = [self.executor, self.pattern.user_agent if self.pattern.hides_user else None]
        return agent not in hidden and not agent.name.startswith((_WRAPPED, _USER))

    def _choose(self, last_speaker: Agent, chat: GroupChat) -> Agent | str | None:
        """Return who speaks after `last_speaker`, the name of a method, or None for the end."""
        pattern, user, message = self.pattern, self.pattern.user_agent, chat.messages[-1]
        if not self._has_begun:
            self._has_begun = True
            return cast(Agent, pattern.initial_agent)
        if message.get("tool_calls"):
            return cast(Agent, self.executor)
        current = self._last_member(chat)
        if (target := self.executor.take_next_target()) is not None:
            return target.next_speaker(chat, cast(Agent, current), cast("Agent | None", user))
        if message.get("role") == "tool":
            return cast(Agent, current)
        if user is not None and last_speaker is cast(Agent, user):
            if not user.handoffs.after_works:
                return cast(Agent, current)
            current = user
        works = current.handoffs.after_works
        held = (each.target for each in works if each.holds(current, chat.messages))
        target = next(held, pattern.group_after_work)
        return target.next_speaker(chat, cast(Agent, current), cast("Agent | None", user))

    def _last_member(self, chat: GroupChat) -> ConversableAgent:
        for message in reversed(chat.messages):
            if (agent := self._members.get(message.get("name", ""))) is not None:
                return agent
        raise ValueError("No group agent found in the message history")


class Pattern:
    """Who takes part in a group chat, who begins, and who speaks when no agent has handed off.

    user_agent                stands for a person; without one, the first message is a person's
    group_manager_args        arguments of the `GroupChatManager`, such as `llm_config`
    context_variables         values that all agents and functions share
    group_after_work          who speaks after an agent that has not handed off; None ends the chat
    exclude_transit_message   no model sees the calls that hand off
    summary_method            see `ConversableAgent.initiate_chat`
    """

    hides_user: ClassVar[bool] = False  # from a person who chooses the next agent

    def __init__(
        self,
        initial_agent: ConversableAgent,
        agents: Sequence[ConversableAgent],
        user_agent: ConversableAgent | None = None,
        group_manager_args: Mapping[str, Any] | None = None,
        context_variables: ContextVariables | None = None,
        group_after_work: TransitionTarget | None = None,
        exclude_transit_message: bool = True,
        summary_method: SummaryMethod = "last_msg",
    ) -> None:
        self.initial_agent = initial_agent
        self.agents = list(agents)
        self.user_agent = user_agent
        self.group_manager_args = dict(group_manager_args or {})
        given = context_variables
        self.context_variables = ContextVariables() if given is None else given
        self.group_after_work = group_after_work or TerminateTarget()
        self.exclude_transit_message = exclude_transit_message
        self.summary_method: SummaryMethod = summary_method

    def set_handoffs(self) -> None:
        """Set the handoffs that the pattern consists of. Subclasses override it."""

    def prepare(self, max_rounds: int, opener: ConversableAgent | None) -> PatternChat:
        """Return the group chat, in which `opener` takes part too.

        Raise `ValueError` if a handoff leads out of the group, or needs a model that the manager
        does not have.
        """
        self.set_handoffs()
        _check_targets(self.agents, self.user_agent)
        members = [*self.agents, *_wrap_nested_chats(self.agents)]
        chat = PatternChat(self, members, opener, max_rounds)
        for agent in [*chat.everyone, chat.manager]:
            agent.context_variables = self.context_variables
        for agent in members:
            _join(agent, chat)
        return chat

    def manager_of(self, groupchat: GroupChat) -> GroupChatManager:
        """Return the manager. Raise `ValueError` if it needs a model and has none."""
        if "groupchat" in self.group_manager_args:
            raise ValueError(
                "'groupchat' cannot be specified in group_manager_args as it is set by "
                "initiate_group_chat"
            )
        manager = GroupChatManager(groupchat, **self.group_manager_args)
        conditions = [each for agent in self.agents for each in agent.handoffs.conditions()]
        targets = [self.group_after_work, *(each.target for each in conditions)]
        if manager.llm_config is False and any(isinstance(t, GroupManagerTarget) for t in targets):
            raise ValueError(_NO_MODEL)
        return manager


class DefaultPattern(Pattern):
    """Agents hand off to each other; the chat ends after one that does not."""


class AutoPattern(Pattern):
    """The model of the group manager chooses who speaks when no agent has handed off."""

    def __init__(
        self,
        initial_agent: ConversableAgent,
        agents: Sequence[ConversableAgent],
        user_agent: ConversableAgent | None = None,
        group_manager_args: Mapping[str, Any] | None = None,
        context_variables: ContextVariables | None = None,
        selection_message: SelectionMessage | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            initial_agent, agents, user_agent, group_manager_args, context_variables, **options
        )
        self.group_after_work = GroupManagerTarget(selection_message)


class ManualPattern(Pattern):
    """A person chooses who speaks when no agent has handed off."""

    hides_user: ClassVar[bool] = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.group_after_work = AskUserTarget()


class RoundRobinPattern(Pattern):
    """The agents speak in turn, from the initial one; the user agent speaks last."""

    def set_handoffs(self) -> None:
        """Hand off to the next agent."""
        turns = list(dict.fromkeys([self.initial_agent, *self.agents]))
        if self.user_agent is not None:
            turns = [agent for agent in turns if agent is not self.user_agent] + [self.user_agent]
        for agent, following in zip(turns, [*turns[1:], turns[0]], strict=True):
            agent.handoffs.set_after_work(AgentTarget(cast(Agent, following)))


class RandomPattern(Pattern):
    """Any other agent speaks next, by chance."""

    def set_handoffs(self) -> None:
        """Hand off to any other agent."""
        everyone = [*self.agents, *([self.user_agent] if self.user_agent else [])]
        for agent in everyone:
            others = [cast(Agent, other) for other in everyone if other is not agent]
            agent.handoffs.set_after_work(RandomAgentTarget(others))


@synchronous
def initiate_group_chat(
    pattern: Pattern, messages: Messages, max_rounds: int = 20
) -> Steps[tuple[ChatResult, ContextVariables, Agent | None]]:
    """Hold the group chat of `pattern`, and return it, its context variables and who spoke last.

    messages     the first message, or the messages of an earlier chat to go on with
    max_rounds   how many messages at most

    Raise `ValueError` if there is no message, one is by an agent that does not take part, or a
    handoff leads out of the group.
    """
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    history = [dict(message) for message in given]
    opener = _opener(pattern, history)
    chat = pattern.prepare(max_rounds, opener)
    manager, message = chat.manager, history[0]
    is_resumed = len(history) > 1
    if is_resumed:
        opener, message = yield from Step(manager.resume, manager.a_resume)(history)
    if opener is None or opener is manager:
        raise ValueError("No agent selected to start the conversation")
    result: ChatResult = yield from Step(opener.initiate_chat, opener.a_initiate_chat)(
        manager,
        message=message,
        clear_history=not is_resumed,
        summary_method=pattern.summary_method,
    )
    for said in result.chat_history or []:
        if said.get("name") == _USER:
            del said["name"]
    return result, pattern.context_variables, manager.last_speaker


a_initiate_group_chat = asynchronous(initiate_group_chat)


def run_group_chat(pattern: Pattern, messages: Messages, max_rounds: int = 20) -> RunResponse:
    """Hold the group chat as `initiate_group_chat` does, and return it as AG2's `run` does."""
    result, variables, _ = initiate_group_chat(pattern, messages, max_rounds)
    return RunResponse(result, variables)


async def a_run_group_chat(
    pattern: Pattern, messages: Messages, max_rounds: int = 20
) -> AsyncRunResponse:
    """Do what `run_group_chat` does, without blocking the event loop."""
    result, variables, _ = await a_initiate_group_chat(pattern, messages, max_rounds)
    return AsyncRunResponse(result, variables)


def _opener(pattern: Pattern, history: Sequence[ChatMessage]) -> ConversableAgent | None:
    """Return the agent that sends the first message; a new one for a person without agent."""
    if not history:
        raise ValueError("A group chat needs a first message.")
    name, user = history[0].get("name"), pattern.user_agent
    if name is None:
        is_new = user is None and len(history) == 1
        return ConversableAgent(_USER, human_input_mode="ALWAYS") if is_new else user
    for agent in [*pattern.agents, *([user] if user else [])]:
        if agent.name == name:
            return agent
    raise ValueError(f"Invalid group agent name in last message: {name}")


def _check_targets(agents: Iterable[ConversableAgent], user: ConversableAgent | None) -> None:
    agents = list(agents)
    names = {agent.name for agent in [*agents, *([user] if user else [])]}
    for agent in agents:
        for condition in agent.handoffs.conditions():
            if unknown := set(condition.target.agent_names()) - names:
                raise ValueError(
                    f"The agent {agent.name!r} hands off to {', '.join(sorted(unknown))}. "
                    "Agents in handoffs must be in the agents list."
                )


def _wrap_nested_chats(agents: Iterable[ConversableAgent]) -> list[ConversableAgent]:
    """Return the agents that hold nested chats, each of which is then the target instead."""
    wrappers: list[ConversableAgent] = []
    for agent in agents:
        nested = [each for each in agent.handoffs.conditions() if _is_nested(each)]
        for number, condition in enumerate(nested, 1):
            target = cast(NestedChatTarget, condition.target)
            wrapper = _nested_agent(f"{_WRAPPED}nested_{agent.name}_{number}", target, agent)
            target.bind(cast(Agent, wrapper))
            wrappers.append(wrapper)
    return wrappers


def _is_nested(condition: OnCondition | OnContextCondition) -> bool:
    return isinstance(condition.target, NestedChatTarget)


def _nested_agent(
    name: str, target: NestedChatTarget, parent: ConversableAgent
) -> ConversableAgent:
    """Return an agent that holds the chats of `target`, and then hands back to `parent`."""
    config = target.nested_chat_config
    wrapper = ConversableAgent(name, human_input_mode="NEVER", llm_config=False)
    wrapper.register_nested_chats(
        config["chat_queue"],
        trigger=lambda _sender: True,  # pyright: ignore[reportUnknownLambdaType] - any sender
        reply_func_from_nested_chats=(
            config.get("reply_func_from_nested_chats") or "summary_from_nested_chats"
        ),
        position=0,
        use_async=config.get("use_async", False),
        config=config.get("config"),
    )
    wrapper.handoffs.set_after_work(AgentTarget(cast(Agent, parent)))
    return wrapper


def _join(agent: ConversableAgent, chat: PatternChat) -> None:
    """Let `agent` take part in `chat`, with its functions and handoffs."""
    executor, conditions = chat.executor, agent.handoffs.llm_conditions
    executor.function_map.update(agent.function_map)
    for name, function in agent.offered_functions.items():
        executor.execute_for(name, function)
    for number, condition in enumerate(conditions, 1):
        name = f"transfer_to_{condition.target.normalized_name()}_{number}"
        condition.llm_function_name = name
        executor.execute_for(name, _transfer_to(condition.target))
        chat.transfers.add(name)
    if agent.group_chat is None:
        agent.register_hook("update_agent_state", _offer_handoffs)
        hide = functools.partial(_without_transfers, agent)
        agent.register_hook("process_all_messages_before_reply", hide)

        async def a_hide(messages: list[ChatMessage]) -> list[ChatMessage]:
            return hide(messages)

        agent.register_hook("a_process_all_messages_before_reply", a_hide)
        agent.register_reply([Agent, None], _hand_off_by_context)
    agent.group_chat = chat


def _transfer_to(target: TransitionTarget) -> Callable[[], TransitionTarget]:
    def transfer() -> TransitionTarget:
        return target

    return transfer


def _offer_handoffs(agent: ConversableAgent, messages: list[ChatMessage]) -> None:
    """Offer those handoffs to the model of `agent` that are available now."""
    for condition in agent.handoffs.llm_conditions:
        name = cast(str, condition.llm_function_name)
        known = next((tool for tool in _tools(agent) if tool["function"]["name"] == name), None)
        schema = None
        if condition.is_available(agent, messages):
            prompt = condition.condition.get_prompt(agent, messages)
            function = _transfer_to(condition.target)
            schema = get_function_schema(function, name=name, description=prompt)
        if known is not None and known != schema:
            agent.update_tool_signature(name, is_remove=True)
        if schema is not None and known != schema:
            agent.update_tool_signature(schema, is_remove=False)


def _tools(agent: ConversableAgent) -> list[JsonSchema]:
    return (agent.llm_config or {}).get("tools") or []


def _hand_off_by_context(
    recipient: ConversableAgent,
    messages: list[ChatMessage] | None = None,
    sender: Agent | None = None,
    config: Any = None,
) -> Reply:
    """Hand off by the first context condition that holds, in place of a reply."""
    chat = cast("PatternChat | None", recipient.group_chat)
    if chat is None or sender is not cast(Agent, chat.manager):
        return False, None
    for condition in recipient.handoffs.context_conditions:
        if condition.holds(recipient, messages or []):
            chat.executor.set_next_target(condition.target)
            return True, f"[Handing off to {condition.target.display_name()}]"
    return False, None


def _without_transfers(agent: ConversableAgent, messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return `messages` without the calls that hand off, and without their results."""
    chat = cast(PatternChat, agent.group_chat)
    if not chat.pattern.exclude_transit_message:
        return messages
    kept: list[ChatMessage] = []
    removed = set[Any]()
    for message in messages:
        calls, results = message.get("tool_calls"), message.get("tool_responses")
        rest = {key: value for key, value in message.items() if not key.startswith("tool_")}
        if calls:
            others = [call for call in calls if call["function"]["name"] not in chat.transfers]
            removed |= {call.get("id") for call in calls if call not in others}
            if others or message.get("content"):
                kept.append({**rest, "tool_calls": others} if others else rest)
        elif results:
            others = [each for each in results if each.get("tool_call_id") not in removed]
            if others:
                kept.append({**rest, "tool_responses": others})
        else:
            kept.append(message)
    return kept
