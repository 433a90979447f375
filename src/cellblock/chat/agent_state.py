"""AgentState: what a ConversableAgent has, and the methods that only read or change it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from .agent import Agent, ChatMessage, Configuration, HumanInputMode
from .code.code_replies import CodeReplies
from .handoffs import Handoffs
from .models.model_replies import ModelReplies, valid_config
from .models.model_wrapper import OpenAIWrapper
from .models.usage import UsageSummary
from .names import assert_valid_name, normalize_name
from .replies.auto_reply_limits import AutoReplyLimits
from .replies.hooks import Hook, Hooks
from .replies.human_input import People
from .replies.message_store import MessageStore, message_dict
from .replies.reply_functions import (
    ReplyEntry,
    ReplyFunction,
    ReplyFunctions,
    check_trigger,
    matches,
)
from .tools.context_variables import ContextVariables
from .tools.function_schema import JsonSchema
from .tools.tool_registration import described_schema, own_name, update_signatures, wrapped_function
from .tools.tool_replies import ToolReplies

if TYPE_CHECKING:
    from .models.cache import AbstractCache

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class AgentParts:
    """The parts of a `ConversableAgent`. None of them knows the agent: its methods connect them."""

    messages: MessageStore
    limits: AutoReplyLimits
    people: People
    replies: ReplyFunctions
    hooks: Hooks
    models: ModelReplies
    tools: ToolReplies
    code: CodeReplies


def _kept(part: str, attribute: str) -> Any:
    """Return an attribute of the agent that one of its parts keeps."""
    find_part = attrgetter(f"_parts.{part}")

    def read(agent: AgentState) -> Any:
        return getattr(find_part(agent), attribute)

    def write(agent: AgentState, value: Any) -> None:
        setattr(find_part(agent), attribute, value)

    return property(read, write)


class AgentState:
    """What a `ConversableAgent` has: a name, a model and its parts."""

    DEFAULT_CONFIG: ClassVar[Any] = False
    MAX_CONSECUTIVE_AUTO_REPLY: ClassVar[int] = 100
    DEFAULT_SUMMARY_METHOD: ClassVar[str] = "last_msg"
    DEFAULT_SUMMARY_PROMPT: ClassVar[str] = (
        "Summarize the takeaway from the conversation. Do not add any introductory phrases."
    )
    _needs_model: ClassVar[bool] = False

    _parts: AgentParts
    _name: str
    _description: Any
    _finished_chats: Any
    human_input_mode: HumanInputMode
    silent: bool | None
    reply_at_receive: defaultdict[Agent, bool]
    llm_config: Configuration
    client: OpenAIWrapper | None
    client_cache: AbstractCache | None
    context_variables: ContextVariables
    handoffs: Handoffs
    group_chat: Any = None
    """The group chat of AG2 that the agent is in."""

    # Subclasses that were written for AutoGen read and set what parts keep under these names.
    hook_lists: dict[str, list[Hook]] = _kept("hooks", "lists")
    _oai_messages: defaultdict[Agent, list[ChatMessage]] = _kept("messages", "by_agent")
    _oai_system_message: list[ChatMessage] = _kept("models", "system_messages")
    _reply_func_list: list[ReplyEntry] = _kept("replies", "entries")
    _default_auto_reply: str | ChatMessage = _kept("replies", "default")
    _is_termination_msg: Callable[[ChatMessage], bool] = _kept("people", "is_termination_msg")
    _human_input: list[str] = _kept("people", "answers")
    _max_consecutive_auto_reply: int = _kept("limits", "limit")
    _max_consecutive_auto_reply_dict: defaultdict[Agent | None, int] = _kept("limits", "by_sender")
    _consecutive_auto_reply_counter: defaultdict[Agent | None, int] = _kept("limits", "counts")
    _function_map: dict[str, Callable[..., Any]] = _kept("tools", "functions")
    _code_execution_config: Configuration = _kept("code", "config")
    _code_executor: Any = _kept("code", "executor")

    @property
    def name(self) -> str:
        """The name, unique among the agents of a chat."""
        return self._name

    @property
    def description(self) -> Any:
        """What the agent is for; a group chat selects speakers by it."""
        return self._description

    @description.setter
    def description(self, description: str) -> None:
        self._description = description

    @property
    def system_message(self) -> Any:
        """The instructions for the model."""
        return self._oai_system_message[0]["content"]

    def update_system_message(self, system_message: str | list[Any]) -> None:
        """Replace the instructions for the model."""
        self._oai_system_message[0]["content"] = system_message

    def reset(self) -> None:
        """Forget all messages, counters and usage; keep what was registered."""
        self.clear_history()
        self.reset_consecutive_auto_reply_counter()
        self.stop_reply_at_receive()
        if self.client is not None:
            self.client.clear_usage_summary()
        self._parts.replies.reset_configs()

    # messages

    @property
    def chat_messages(self) -> dict[Agent, list[ChatMessage]]:
        """The messages by the other agent."""
        return self._parts.messages.by_agent

    def chat_messages_for_summary(self, agent: Agent) -> list[ChatMessage]:
        """Return the messages with `agent` that a summary is made from."""
        return self._parts.messages.by_agent[agent]

    def last_message(self, agent: Agent | None = None) -> ChatMessage | None:
        """Return the last message with `agent`; None if there is none at all.

        Raise `ValueError` if `agent` is None and there are several conversations, and `KeyError`
        if there is none with `agent`.
        """
        return self._parts.messages.last(agent)

    def clear_history(
        self, recipient: Agent | None = None, nr_messages_to_preserve: int | None = None
    ) -> None:
        """Forget the messages with `recipient`, or with all agents if it is None.

        The last `nr_messages_to_preserve` of each conversation stay, and the tool call that their
        first message answers. It is ignored with a `recipient`.
        """
        self._parts.messages.clear(recipient, nr_messages_to_preserve, self.name)

    @staticmethod
    def _message_to_dict(message: ChatMessage | str) -> ChatMessage:
        return message_dict(message)

    def _append_oai_message(
        self,
        message: ChatMessage | str,
        role: str,
        conversation_id: Agent,
        is_sending: bool,
    ) -> bool:
        """Store `message`; return False if a chat model would not accept it.

        `role` is `assistant` for what this agent sends and `user` for what it receives.
        """
        speaker = self.name if is_sending else conversation_id.name
        stored = self._message_to_dict(message)
        return self._parts.messages.append(stored, role, conversation_id, speaker)

    # replies

    def stop_reply_at_receive(self, sender: Agent | None = None) -> None:
        """Stop replying to messages of `sender`; None: of all."""
        if sender is None:
            self.reply_at_receive.clear()
        else:
            self.reply_at_receive[sender] = False

    def max_consecutive_auto_reply(self, sender: Agent | None = None) -> int:
        """Return how many automatic replies in a row the agent sends to `sender`."""
        limits = self._parts.limits
        return limits.limit if sender is None else limits.by_sender[sender]

    def update_max_consecutive_auto_reply(self, value: int, sender: Agent | None = None) -> None:
        """Send up to `value` automatic replies in a row to `sender`; None: to each."""
        self._parts.limits.update(value, sender)

    def reset_consecutive_auto_reply_counter(self, sender: Agent | None = None) -> None:
        """Count the automatic replies to `sender` from 0; None: to all."""
        self._parts.limits.reset(sender)

    def register_hook(self, hookable_method: str, hook: Hook) -> None:
        """Run `hook` with what the method `hookable_method` processes.

        - `process_last_received_message`: `hook(content) -> content`
        - `process_all_messages_before_reply`: `hook(messages) -> messages`
        - `process_message_before_send`: `hook(sender, message, recipient, silent) -> message`,
          called with keywords
        - `update_agent_state`: `hook(agent, messages)`, before each reply

        Each has a version for asynchronous chats, with `a_` before its name. Raise
        `AssertionError` if the name is unknown or the hook is registered already, and `TypeError`
        if the hook is asynchronous and the name is not.
        """
        self._parts.hooks.register(hookable_method, hook)

    def register_reply(
        self,
        trigger: Any,
        reply_func: ReplyFunction,
        position: int = 0,
        config: Any = None,
        reset_config: Callable[[Any], Any] | None = None,
        *,
        ignore_async_in_sync_chat: bool = False,
        remove_other_reply_funcs: bool = False,
    ) -> None:
        """Try `reply_func` for messages of the senders that `trigger` matches.

        `trigger` is a class of agents, the name of an agent, an agent, a function
        `(sender) -> bool` or a list of those; None in a list matches messages without a sender.
        `reply_func(recipient, messages, sender, config)` returns `(final, reply)`; the next
        function is tried if `final` is False. It is tried before the others, or at `position` of
        them.

        `reset()` calls `reset_config(config)`, else sets `config` to a copy of what was passed.
        Asynchronous functions need `a_initiate_chat`, unless `ignore_async_in_sync_chat` is set.
        Raise `ValueError` if `trigger` is something else.
        """
        check_trigger(trigger)
        if remove_other_reply_funcs:
            self._parts.replies.entries.clear()
        self._parts.replies.add(
            position,
            trigger=trigger,
            reply_func=reply_func,
            config=config,
            reset_config=reset_config,
            ignore_async_in_sync_chat=ignore_async_in_sync_chat,
        )

    def replace_reply_func(
        self, old_reply_func: ReplyFunction, new_reply_func: ReplyFunction
    ) -> None:
        """Try `new_reply_func` where `old_reply_func` was registered."""
        self._parts.replies.replace(old_reply_func, new_reply_func)

    def _match_trigger(self, trigger: Any, sender: Agent | None) -> bool:
        return matches(trigger, sender)

    def _raise_exception_on_async_reply_functions(self) -> None:
        self._parts.replies.refuse_async()

    # functions and code

    @property
    def function_map(self) -> dict[str, Callable[..., Any]]:
        """The functions that the agent executes, by name."""
        return self._parts.tools.functions

    @property
    def offered_functions(self) -> dict[str, Callable[..., Any]]:
        """The functions that the agent's model can call, by name."""
        return self._parts.tools.offered

    def can_execute_function(self, name: Sequence[str] | str) -> bool:
        """Return True if the agent executes the function `name`, or all of a list of names."""
        names = [name] if isinstance(name, str) else name
        return all(each in self._parts.tools.functions for each in names)

    def register_function(self, function_map: Mapping[str, Callable[..., Any] | None]) -> None:
        """Execute these functions by these names. None removes the function of that name."""
        self._parts.tools.register(function_map)

    def update_function_signature(self, func_sig: str | JsonSchema, is_remove: bool | None) -> None:
        """Add `func_sig` to the model's `functions`, or remove it (a name is enough).

        Raise `AssertionError` if the agent has no model or, to remove, no functions.
        """
        update_signatures(self, "function", func_sig, is_remove)

    def update_tool_signature(self, tool_sig: str | JsonSchema, is_remove: bool | None) -> None:
        """Add `tool_sig` to the model's `tools`, or remove it (a name is enough).

        Raise `AssertionError` if the agent has no model or, to remove, no tools.
        """
        update_signatures(self, "tool", tool_sig, is_remove)

    def register_for_llm(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        api_style: Literal["function", "tool"] = "tool",
    ) -> Callable[[F], F]:
        """Return a decorator that offers the function to the agent's model.

        name          None means the function's name
        description   what the function does, for the model
        api_style     "tool", or "function" for services that know only `functions`

        `name` and `description` stay with the function: a second decorator need not repeat them.
        The decorator raises `ValueError` without a description.
        """

        def register(func: F) -> F:
            schema = described_schema(func, name, description)
            if api_style == "tool":
                self.update_tool_signature(schema, is_remove=False)
            elif api_style == "function":
                self.update_function_signature(schema["function"], is_remove=False)
            else:
                raise ValueError(f"Unsupported API style: {api_style}")
            self._parts.tools.offered[own_name(func, name)] = func
            return func

        return register

    def register_for_execution(self, name: str | None = None) -> Callable[[F], F]:
        """Return a decorator that lets the agent execute the function.

        `name` None means the name of an earlier decorator, else the function's name. Arguments of
        pydantic classes are made from dicts. Text is returned as it is, other values as JSON.
        """

        def register(func: F) -> F:
            known_name = own_name(func, name)
            self.register_function({known_name: self._wrap_function(func)})
            return func

        return register

    @property
    def code_executor(self) -> Any:
        """The executor of `code_execution_config`. None if there is none, or code is not run."""
        return self._parts.code.executor

    @property
    def use_docker(self) -> Any:
        """`use_docker` of `code_execution_config`; None if code is not run or has an executor."""
        return self._parts.code.use_docker

    # models

    def register_model_client(self, model_client_cls: type[Any], **kwargs: Any) -> None:
        """Use `model_client_cls`, a `ModelClient`, for the entry of `config_list` that names it.

        It is created with the entry and `kwargs`. Raise `ValueError` if no entry names it, or the
        agent has no model.
        """
        self._parts.models.register_client(self, model_client_cls, kwargs)

    def print_usage_summary(self, mode: str | list[str] | None = None) -> None:
        """Print what the agent's models used. See `OpenAIWrapper.print_usage_summary`."""
        self._parts.models.print_usage(self, mode)

    def get_actual_usage(self) -> UsageSummary | None:
        """Return the usage without the answers of caches; None if there is none."""
        return None if self.client is None else self.client.actual_usage_summary

    def get_total_usage(self) -> UsageSummary | None:
        """Return the usage with the answers of caches; None if there is none."""
        return None if self.client is None else self.client.total_usage_summary

    def _validate_llm_config(self, llm_config: Configuration | None) -> None:
        """Use the models of `llm_config`. Raise `ValueError` if it names none."""
        self.llm_config = config = valid_config(llm_config, self.DEFAULT_CONFIG)
        self.client = None if config is False else OpenAIWrapper(**config)

    # other names that AutoGen has

    @staticmethod
    def _assert_valid_name(name: str) -> str:
        return assert_valid_name(name)

    @staticmethod
    def _normalize_name(name: str) -> str:
        return normalize_name(name)

    @staticmethod
    def _is_silent(agent: Agent, silent: bool | None = False) -> bool | None:
        """Return the agent's own `silent`, else the one of the call."""
        own: bool | None = getattr(agent, "silent", None)
        return silent if own is None else own

    def _wrap_function(self, func: Any) -> Any:
        return wrapped_function(func)

    def _str_for_tool_response(self, tool_response: Mapping[str, Any]) -> str:
        return str(tool_response.get("content", ""))
