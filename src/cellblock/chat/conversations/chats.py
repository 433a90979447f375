"""Chats: two agents talk until one has no reply, or for a number of turns."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ..agent import ChatMessage
from ..models.usage import gather_usage_summary
from ..steps import Step, Steps, run, run_async
from . import chat_queue as queues
from .carryover import add_carryover
from .chat_history import ChatHistory
from .chat_result import ChatResult
from .summaries import Summaries, SummaryMethod, call_function, check_summary_method

if TYPE_CHECKING:
    from ..models.cache import AbstractCache

Message = ChatMessage | str | None
FirstMessage = Message | Callable[..., Any]
"""The message, a function (sender, recipient, context) that returns it, or None: ask a human."""


@dataclass(frozen=True)
class ChatOptions:
    """How a chat runs; see `Chats.initiate_chat`."""

    clear_history: bool = True
    silent: bool | None = False
    cache: AbstractCache | None = None
    max_turns: int | None = None
    summary_method: SummaryMethod = "last_msg"
    summary_args: Mapping[str, Any] | None = None
    context: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.max_turns is not None and not isinstance(cast(object, self.max_turns), int):
            raise TypeError(f"max_turns is an integer or None, not {self.max_turns!r}.")


class Chats(Summaries, ChatHistory):
    """The part of an agent that opens chats."""

    def initiate_chat(
        self,
        recipient: Chats,
        clear_history: bool = True,
        silent: bool | None = False,
        cache: AbstractCache | None = None,
        max_turns: int | None = None,
        summary_method: SummaryMethod = "last_msg",
        summary_args: Mapping[str, Any] | None = None,
        message: FirstMessage = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Send `message` to `recipient`, and return the chat when it is over.

        Without `max_turns` the chat is over when one agent has no reply. One turn is a message of
        this agent and its answer. What is stored from earlier chats of the two is cleared unless
        `clear_history` is False. `summary_method` is `"last_msg"`, `"reflection_with_llm"` (the
        model gets `summary_args["summary_prompt"]` with `summary_args["summary_role"]`), a
        function (sender, recipient, summary_args), or None. `carryover` (text, or a list) is added
        to the message. A function as `message` gets `carryover` and other `kwargs` as context.

        Raise RuntimeError if an agent has an asynchronous reply function of a user.
        """
        _warn_of_misspelling(kwargs, message=message, max_turns=max_turns)
        options = ChatOptions(
            clear_history, silent, cache, max_turns, summary_method, summary_args, kwargs
        )
        for agent in (self, _chat_agent(recipient)):
            agent._raise_exception_on_async_reply_functions()
        return run(self._chat_steps(recipient, message, options))

    async def a_initiate_chat(
        self,
        recipient: Chats,
        clear_history: bool = True,
        silent: bool | None = False,
        cache: AbstractCache | None = None,
        max_turns: int | None = None,
        summary_method: SummaryMethod = "last_msg",
        summary_args: Mapping[str, Any] | None = None,
        message: FirstMessage = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Do what `initiate_chat` does.

        Functions as `message` and `summary_method` may be asynchronous.
        """
        _warn_of_misspelling(kwargs, message=message, max_turns=max_turns)
        options = ChatOptions(
            clear_history, silent, cache, max_turns, summary_method, summary_args, kwargs
        )
        return await run_async(self._chat_steps(_chat_agent(recipient), message, options))

    def _chat_steps(
        self, recipient: Chats, message: FirstMessage, options: ChatOptions
    ) -> Steps[ChatResult]:
        check_summary_method(options.summary_method, self, recipient)
        with _cache_of((self, recipient), options.cache):
            self._prepare_chat(
                recipient, options.clear_history, reply_at_receive=options.max_turns is None
            )
            if options.max_turns is None:
                yield from self._untimed_chat_steps(recipient, message, options)
            else:
                yield from self._turn_steps(recipient, message, options, options.max_turns)
            summarize = Step(self._summarize_chat, self._a_summarize_chat)
            summary = yield from summarize(
                options.summary_method, options.summary_args, recipient, options.cache
            )
        return ChatResult(
            chat_history=[*self._oai_messages[_key(recipient)]],
            summary=summary,
            cost=gather_usage_summary([_key(self), _key(recipient)]),
            human_input=[*self._human_input],
        )

    def _untimed_chat_steps(
        self, recipient: Chats, message: FirstMessage, options: ChatOptions
    ) -> Steps[None]:
        first = yield from self._first_message_steps(recipient, message, options.context)
        if first is not None:
            yield from Step(self.send, self.a_send)(first, _key(recipient), silent=options.silent)

    def _turn_steps(
        self,
        recipient: Chats,
        message: FirstMessage,
        options: ChatOptions,
        max_turns: int,
    ) -> Steps[None]:
        other = _key(recipient)
        reply = Step(self.generate_reply, self.a_generate_reply)
        for turn in range(max_turns):
            if turn == 0:
                sent = yield from self._first_message_steps(recipient, message, options.context)
            else:
                sent = yield from reply(messages=self.chat_messages[other], sender=other)
            if sent is None:
                return
            yield from Step(self.send, self.a_send)(
                sent, other, request_reply=True, silent=options.silent
            )

    def _first_message_steps(
        self, recipient: Chats, message: FirstMessage, context: dict[str, Any]
    ) -> Steps[Message]:
        if not callable(message):
            generate = Step(self.generate_init_message, self.a_generate_init_message)
            return (yield from generate(message, **context))
        return (yield from call_function(message, self, recipient, context))

    def generate_init_message(self, message: Message, **kwargs: Any) -> ChatMessage | str:
        """Return the first message of a chat, with `kwargs["carryover"]`.

        Ask the human for it if `message` is None. Raise `InvalidCarryOverType` if the carryover is
        neither text nor a list.
        """
        if message is None:
            with _naming_missing_message():
                message = self.get_human_input(">")
        return self._handle_carryover(message, kwargs)

    async def a_generate_init_message(self, message: Message, **kwargs: Any) -> ChatMessage | str:
        """Do what `generate_init_message` does."""
        if message is None:
            with _naming_missing_message():
                message = await self.a_get_human_input(">")
        return self._handle_carryover(message, kwargs)

    def _handle_carryover(
        self, message: ChatMessage | str, kwargs: Mapping[str, Any]
    ) -> ChatMessage | str:
        return add_carryover(message, kwargs.get("carryover"))

    def _prepare_chat(
        self,
        recipient: Chats,
        clear_history: bool,
        prepare_recipient: bool = True,
        reply_at_receive: bool = True,
    ) -> None:
        other = _key(recipient)
        self.reset_consecutive_auto_reply_counter(other)
        self.reply_at_receive[other] = reply_at_receive
        if clear_history:
            self.clear_history(other)
            self._human_input = []
        if prepare_recipient:
            recipient._prepare_chat(cast(Any, self), clear_history, False, reply_at_receive)

    def initiate_chats(self, chat_queue: list[dict[str, Any]]) -> list[ChatResult]:
        """Open chats one after the other, and return their results.

        Each entry has the arguments of `initiate_chat`, with `recipient`. `sender` is this agent
        unless the entry has another. Summaries of chats are carried over to the chats behind them,
        but for the numbers in `finished_chat_indexes_to_exclude_from_carryover`.
        """
        self._finished_chats = finished = list[ChatResult]()
        queues.run_chats(self._with_sender(chat_queue), finished)
        return finished

    async def a_initiate_chats(self, chat_queue: list[dict[str, Any]]) -> dict[Any, ChatResult]:
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

    def _with_sender(self, chat_queue: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [{**entry, "sender": entry.get("sender") or self} for entry in chat_queue]


def _key(agent: object) -> Any:
    """Return `agent` as the type of the other part: parts are agents when they are put together."""
    return agent


def _chat_agent(agent: object) -> Any:
    if not isinstance(agent, Chats):
        raise TypeError(f"Agents chat with a ConversableAgent. The recipient is {agent!r}.")
    return agent


def _warn_of_misspelling(given: Iterable[str], **options: object) -> None:
    """Warn of a name in `given` that is close to an option that is None."""
    missing = [name for name, value in options.items() if value is None]
    for name in given:
        for meant in difflib.get_close_matches(name, missing, n=1, cutoff=0.8):
            warnings.warn(
                f"initiate_chat() has no option {name!r}. Did you mean {meant}=?",
                UserWarning,
                stacklevel=3,
            )


@contextmanager
def _naming_missing_message() -> Generator[None]:
    """Say that a person was asked for lack of a message, if the input ends."""
    try:
        yield
    except EOFError as error:
        error.add_note("No message= was given, so a person was asked for it. Pass message=.")
        raise


@contextmanager
def _cache_of(agents: Iterable[Any], cache: AbstractCache | None) -> Generator[None]:
    """Let the agents use `cache` for their model calls, and put back what they had."""
    before = [(agent, agent.client_cache) for agent in agents]
    for agent, _ in before:
        agent.client_cache = cache
    try:
        yield
    finally:
        for agent, previous in before:
            agent.client_cache = previous
