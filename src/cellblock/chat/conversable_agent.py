"""ConversableAgent: an agent that can ask a model, a person, and run code and tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..models.client import with_parameters_of
from .agent import Agent, ChatMessage, Configuration, HumanInputMode
from .agent_state import AgentParts
from .code.code_replies import CodeReplies
from .conversations import chat_queue as queues
from .conversations.agent_run import run_steps
from .conversations.carryover import add_carryover
from .conversations.chat_result import ChatResult
from .conversations.chats import (
    ChatOptions,
    FirstMessage,
    Message,
    chat_steps,
    init_message_steps,
    warn_of_misspelling,
)
from .conversations.nested_chats import (
    REPLY_OPTIONS,
    SUMMARY_REPLY,
    a_summary_from_nested_chats,
    nested_reply_function,
    summary_from_nested_chats,
)
from .conversations.run_response import AsyncRunResponse, RunResponse
from .conversations.summaries import (
    SummaryMethod,
    answer_text_steps,
    last_msg_as_summary,
    reflection_as_summary,
    summary_steps,
    with_cache,
)
from .handoffs import Handoffs, listed_functions
from .models.model_replies import ModelReplies
from .printing import print_message
from .replies.auto_reply_limits import AutoReplyLimits
from .replies.hooks import Hooks
from .replies.human_input import People, valid_mode
from .replies.message_store import MessageStore
from .replies.reply_functions import ReplyFunctions
from .replying_agent import ReplyingAgent
from .steps import (
    Step,
    Steps,
    asynchronous,
    run,
    run_async,
    synchronous,
)
from .tools.context_variables import ContextVariables
from .tools.tool_replies import ToolReplies

if TYPE_CHECKING:
    from .models.cache import AbstractCache

F = TypeVar("F", bound=Callable[..., Any])
Messages = list[ChatMessage] | None


class ConversableAgent(ReplyingAgent):
    """An agent that converses with others.

    To reply it tries, in this order: the end of the conversation or a person, as
    `human_input_mode` says; the functions and tools that the message calls; the code in the
    message; a chat model. `default_auto_reply` is the reply if none of them has one.

    - `system_message`: the instructions for the model.
    - `is_termination_msg`: returns True for a message that ends the conversation; by default one
      whose whole content is `TERMINATE`.
    - `max_consecutive_auto_reply`: how many replies in a row need no person; by default 100.
    - `human_input_mode`: `ALWAYS` asks a person for each reply; `TERMINATE` asks at the end of a
      conversation and when the automatic replies are used up; `NEVER` does not ask.
    - `function_map`: the functions that a model can call, by name.
    - `code_execution_config`: False runs no code; `{"executor": …}` runs it with that executor;
      `work_dir`, `use_docker`, `timeout` and `last_n_messages` say how without one.
    - `llm_config`: the model, for example `{"config_list": [{"model": …, "api_key": …}]}`; False
      for no model.
    - `description`: what the agent is for; by default its system message.
    - `chat_messages`: earlier messages by the other agent.
    - `silent`: True prints nothing that this agent sends; None leaves it to each chat.
    - `functions`: functions that the model can call, described by their docstrings. In a group chat
      of AG2 they are executed; otherwise another agent registers them for execution.
    - `context_variables`, `handoffs`, `update_agent_state_before_reply`: for group chats of AG2;
      see `chat.handoffs`. The last are `UpdateSystemMessage`s or functions (agent, messages)
      that run before each reply.
    """

    def __init__(
        self,
        name: str,
        system_message: str | list[Any] | None = "You are a helpful AI Assistant.",
        is_termination_msg: Callable[[ChatMessage], bool] | None = None,
        max_consecutive_auto_reply: int | None = None,
        human_input_mode: HumanInputMode = "TERMINATE",
        function_map: dict[str, Callable[..., Any]] | None = None,
        code_execution_config: Configuration = False,
        llm_config: Configuration | None = None,
        default_auto_reply: str | ChatMessage = "",
        description: str | None = None,
        chat_messages: Mapping[Agent, list[ChatMessage]] | None = None,
        silent: bool | None = None,
        functions: Callable[..., Any] | Iterable[Callable[..., Any]] | None = None,
        context_variables: ContextVariables | None = None,
        handoffs: Handoffs | None = None,
        update_agent_state_before_reply: Callable[..., Any]
        | Iterable[Callable[..., Any]]
        | None = None,
    ) -> None:
        self._name = name
        self.human_input_mode: HumanInputMode = valid_mode(human_input_mode)
        self.silent = silent
        self._description = system_message if description is None else description
        self.reply_at_receive = defaultdict(bool)
        self.client_cache: AbstractCache | None = None
        limit = max_consecutive_auto_reply
        limits = AutoReplyLimits(
            self.MAX_CONSECUTIVE_AUTO_REPLY if limit is None else limit,
            self.max_consecutive_auto_reply,
        )
        people = People(is_termination_msg, limits)
        self._validate_llm_config(llm_config)
        self._parts = AgentParts(
            messages=MessageStore(chat_messages),
            limits=limits,
            people=people,
            replies=ReplyFunctions(default_auto_reply),
            hooks=Hooks(),
            models=ModelReplies(system_message, is_needed=self._needs_model),
            tools=ToolReplies(function_map),
            code=CodeReplies(code_execution_config, checks_options=not self._runs_code_itself()),
        )
        self._register_own_replies()
        self.context_variables = (
            ContextVariables() if context_variables is None else context_variables
        )
        self.handoffs = Handoffs() if handoffs is None else handoffs
        for function in listed_functions(functions):
            self.register_for_llm(description=function.__doc__ or function.__name__)(function)
        for update in listed_functions(update_agent_state_before_reply):
            self.register_hook("update_agent_state", update)

    # send and receive: a recursion. To stay far from Python's recursion limit, both versions are
    # written out instead of as steps.

    def send(
        self,
        message: ChatMessage | str,
        recipient: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Send `message` to `recipient`, which replies as `receive` says.

        `silent` suppresses the printing; the agent's own `silent` comes first. Raise `ValueError`
        if the message has neither content nor a call.
        """
        is_silent = self._is_silent(self, silent)
        message = self._process_message_before_send(message, recipient, is_silent)
        self._store_sent_message(message, recipient)
        cast(Any, recipient).receive(message, self, request_reply, silent)

    async def a_send(
        self,
        message: ChatMessage | str,
        recipient: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Send `message` to `recipient`; see `send`."""
        is_silent = self._is_silent(self, silent)
        message = await self._a_process_message_before_send(message, recipient, is_silent)
        self._store_sent_message(message, recipient)
        await cast(Any, recipient).a_receive(message, self, request_reply, silent)

    def receive(
        self,
        message: ChatMessage | str,
        sender: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Store and print `message` of `sender`, and send the reply.

        `request_reply` says whether to reply; None replies within a chat that was initiated with
        `sender`. Raise `ValueError` if the message has neither content nor a call.
        """
        self._process_received_message(message, sender, silent)
        if not (self.reply_at_receive[sender] if request_reply is None else request_reply):
            return
        reply = self.generate_reply(messages=self.chat_messages[sender], sender=sender)
        if reply is not None:
            self.send(reply, sender, silent=silent)

    async def a_receive(
        self,
        message: ChatMessage | str,
        sender: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Store and print `message` of `sender`, and send the reply; see `receive`."""
        self._process_received_message(message, sender, silent)
        if not (self.reply_at_receive[sender] if request_reply is None else request_reply):
            return
        reply = await self.a_generate_reply(messages=self.chat_messages[sender], sender=sender)
        if reply is not None:
            await self.a_send(reply, sender, silent=silent)

    @synchronous
    def _process_message_before_send(
        self, message: ChatMessage | str, recipient: Agent, silent: bool | None
    ) -> Steps[ChatMessage | str]:
        return self._parts.hooks.message_to_send_steps(self, message, recipient, silent)

    _a_process_message_before_send = asynchronous(_process_message_before_send)

    def _store_sent_message(self, message: ChatMessage | str, recipient: Agent) -> None:
        if not self._append_oai_message(message, "assistant", recipient, is_sending=True):
            raise _invalid_message("Message")

    def _process_received_message(
        self, message: ChatMessage | str, sender: Agent, silent: bool | None
    ) -> None:
        """Store `message`, and print it unless the sender is silent."""
        if not self._append_oai_message(message, "user", sender, is_sending=False):
            raise _invalid_message("Received message")
        if not self._is_silent(sender, silent):
            self._print_received_message(message, sender)

    def _print_received_message(self, message: ChatMessage | str, sender: Agent) -> None:
        print_message(
            self._message_to_dict(message),
            sender.name,
            self.name,
            print_response=lambda response: self._print_received_message(response, sender),
            use_templates=bool(
                self.llm_config and self.llm_config.get("allow_format_str_template", False)
            ),
        )

    # chats

    @synchronous
    def initiate_chat(
        self,
        recipient: ConversableAgent,
        clear_history: bool = True,
        silent: bool | None = False,
        cache: AbstractCache | None = None,
        max_turns: int | None = None,
        summary_method: SummaryMethod = "last_msg",
        summary_args: Mapping[str, Any] | None = None,
        message: FirstMessage = None,
        **kwargs: Any,
    ) -> Steps[ChatResult]:
        """Send `message` to `recipient`, and return the chat when it is over.

        Without `max_turns` the chat is over when one agent has no reply. One turn is a message of
        this agent and its answer. Messages from their earlier chats are cleared unless
        `clear_history` is False. `summary_method` is `"last_msg"`, `"reflection_with_llm"` (the
        model gets `summary_args["summary_prompt"]` with `summary_args["summary_role"]`), a
        function (sender, recipient, summary_args), or None. `carryover` (text, or a list) is added
        to the message. A function as `message` gets `carryover` and other `kwargs` as context.

        In an asynchronous chat functions as `message` and `summary_method` may be asynchronous.
        In a synchronous one, raise RuntimeError if an agent has an asynchronous reply function of
        a user.
        """
        warn_of_misspelling(kwargs, message=message, max_turns=max_turns)
        options = ChatOptions(
            clear_history, silent, cache, max_turns, summary_method, summary_args, kwargs
        )
        if not isinstance(cast(object, recipient), ConversableAgent):
            raise TypeError(f"Agents chat with a ConversableAgent. The recipient is {recipient!r}.")
        return chat_steps(self, recipient, message, options)

    a_initiate_chat = asynchronous(initiate_chat)

    @synchronous
    def generate_init_message(self, message: Message, **kwargs: Any) -> Steps[ChatMessage | str]:
        """Return the first message of a chat, with `kwargs["carryover"]`.

        Ask the human for it if `message` is None. Raise `InvalidCarryOverType` if the carryover is
        neither text nor a list.
        """
        ask = Step(self.get_human_input, self.a_get_human_input)
        first = yield from init_message_steps(ask, message)
        return self._handle_carryover(first, kwargs)

    a_generate_init_message = asynchronous(generate_init_message)

    def _handle_carryover(
        self, message: ChatMessage | str, kwargs: Mapping[str, Any]
    ) -> ChatMessage | str:
        return add_carryover(message, kwargs.get("carryover"))

    def _prepare_chat(
        self,
        recipient: ConversableAgent,
        clear_history: bool,
        prepare_recipient: bool = True,
        reply_at_receive: bool = True,
    ) -> None:
        self.reset_consecutive_auto_reply_counter(recipient)
        self.reply_at_receive[recipient] = reply_at_receive
        if clear_history:
            self.clear_history(recipient)
            self._human_input = []
        if prepare_recipient:
            recipient._prepare_chat(self, clear_history, False, reply_at_receive)

    @synchronous
    def _summarize_chat(
        self,
        summary_method: SummaryMethod,
        summary_args: Mapping[str, Any] | None,
        recipient: ConversableAgent,
        cache: AbstractCache | None = None,
    ) -> Steps[Any]:
        return summary_steps(self, recipient, summary_method, with_cache(summary_args, cache))

    _a_summarize_chat = asynchronous(_summarize_chat)
    _last_msg_as_summary = staticmethod(last_msg_as_summary)
    _reflection_with_llm_as_summary = staticmethod(reflection_as_summary)

    @synchronous
    def _reflection_with_llm(
        self,
        prompt: str,
        messages: list[ChatMessage],
        llm_agent: ConversableAgent | None = None,
        cache: AbstractCache | None = None,
        role: str | None = None,
    ) -> Steps[str]:
        client = (llm_agent.client if llm_agent else None) or self.client
        ask = Step(self._generate_oai_reply_from_client, self._a_generate_oai_reply_from_client)
        return answer_text_steps(prompt, messages, client, cache, role, ask)

    _a_reflection_with_llm = asynchronous(_reflection_with_llm)

    def initiate_chats(self, chat_queue: list[queues.Entry]) -> list[ChatResult]:
        """Open chats one after the other, and return their results.

        Each entry has the arguments of `initiate_chat`, with `recipient`. `sender` is this agent
        unless the entry has another. Summaries of chats are carried over to the chats behind them,
        but for the numbers in `finished_chat_indexes_to_exclude_from_carryover`.
        """
        self._finished_chats = finished = list[ChatResult]()
        queues.run_chats(self._with_sender(chat_queue), finished)
        return finished

    async def a_initiate_chats(self, chat_queue: list[queues.Entry]) -> dict[Any, ChatResult]:
        """Open chats side by side, and return the results by the `chat_id` of the entries.

        A chat waits for the chats in its `prerequisites`, whose summaries are carried over.
        """
        self._finished_chats = finished = dict[Any, ChatResult]()
        await queues.a_run_chats(self._with_sender(chat_queue), finished)
        return finished

    def get_chat_results(self, chat_index: Any = None) -> Any:
        """Return the results of the last `initiate_chats`, or the one at `chat_index`.

        After `a_initiate_chats` the index is a `chat_id`. Raise `LookupError` if there is none.
        """
        finished = getattr(self, "_finished_chats", [])
        return finished if chat_index is None else finished[chat_index]

    def _with_sender(self, chat_queue: Iterable[Mapping[str, Any]]) -> list[queues.Entry]:
        return [{**entry, "sender": entry.get("sender") or self} for entry in chat_queue]

    def register_nested_chats(
        self,
        chat_queue: list[queues.Entry],
        trigger: Any,
        reply_func_from_nested_chats: str | Callable[..., Any] = SUMMARY_REPLY,
        position: int = 2,
        use_async: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Hold the chats of `chat_queue` before the reply to each message from `trigger`.

        The reply is the summary of the last chat. Each entry has the arguments of `initiate_chat`.
        The agent is the sender unless the entry has another. A function as `message` has the
        arguments (recipient, messages, sender, config); a chat is left out if its message is empty.
        The first chat opens with the message that it replies to if it has none.

        A function as `reply_func_from_nested_chats` has the arguments (chat_queue, recipient,
        messages, sender, config) and returns (final, reply). With `use_async` the chats run only in
        asynchronous chats, side by side, and each entry needs a `chat_id`. `kwargs` may have
        `config`, `reset_config` and `ignore_async_in_sync_chat` of `register_reply`.
        """
        function: Any = reply_func_from_nested_chats
        if function == SUMMARY_REPLY:
            summary, a_summary = self._summary_from_nested_chats, self._a_summary_from_nested_chats
            function = a_summary if use_async else summary
        reply = nested_reply_function(chat_queue, function, use_async=bool(use_async))
        options = {key: kwargs[key] for key in REPLY_OPTIONS if key in kwargs}
        self.register_reply(trigger, reply, position, **options)

    _summary_from_nested_chats = staticmethod(summary_from_nested_chats)
    _a_summary_from_nested_chats = staticmethod(a_summary_from_nested_chats)

    @staticmethod
    def _new_user(**settings: Any) -> ConversableAgent:
        return ConversableAgent(**settings)

    @with_parameters_of(run_steps)
    def run(self, *arguments: Any, **options: Any) -> RunResponse:
        """Chat with `recipient` as AG2's `run` does; the other `options` are of `initiate_chat`.

        Without `recipient` the other agent is a new one named "user", which executes the functions
        `tools` and asks a person if `user_input`. `executor_kwargs` are further arguments of it,
        such as `code_execution_config`. `msg_to` says who gets the message.
        """
        return RunResponse(run(run_steps(self, *arguments, **options)))

    @with_parameters_of(run_steps)
    async def a_run(self, *arguments: Any, **options: Any) -> AsyncRunResponse:
        """Do what `run` does, without blocking the event loop."""
        return AsyncRunResponse(await run_async(run_steps(self, *arguments, **options)))


def _invalid_message(what: str) -> ValueError:
    return ValueError(
        f"{what} can't be converted into a valid ChatCompletion message. "
        "Either content or function_call must be provided."
    )
