"""Chats: two agents talk until one has no reply, or for a number of turns."""

# Private methods of agents have AutoGen's names, and users override them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import difflib
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...tracing import genai_span
from ..agent import ChatMessage
from ..models.templates import Context
from ..models.usage import gather_usage_summary
from ..steps import Step, Steps
from .chat_result import ChatResult
from .summaries import Summarizes, SummaryMethod, call_function, check_summary_method

if TYPE_CHECKING:
    from ..models.cache import AbstractCache

Message = ChatMessage | str | None
FirstMessage = Message | Callable[..., Any]
"""The message, a function (sender, recipient, context) that returns it, or None: ask a human."""


@dataclass(frozen=True)
class ChatOptions:
    """How a chat runs; see `ConversableAgent.initiate_chat`."""

    clear_history: bool = True
    silent: bool | None = False
    cache: AbstractCache | None = None
    max_turns: int | None = None
    summary_method: SummaryMethod = "last_msg"
    summary_args: Mapping[str, Any] | None = None
    context: Context = field(default_factory=Context)

    def __post_init__(self) -> None:
        if self.max_turns is not None and not isinstance(cast(object, self.max_turns), int):
            raise TypeError(f"max_turns is an integer or None, not {self.max_turns!r}.")


class Chatter(Summarizes, Protocol):
    """An agent that chats."""

    client_cache: AbstractCache | None
    _human_input: list[str]

    @property
    def name(self) -> str: ...
    @property
    def chat_messages(self) -> dict[Any, list[ChatMessage]]: ...
    @property
    def send(self) -> Callable[..., None]: ...
    @property
    def a_send(self) -> Callable[..., Awaitable[None]]: ...
    @property
    def generate_reply(self) -> Callable[..., Message]: ...
    @property
    def a_generate_reply(self) -> Callable[..., Awaitable[Message]]: ...
    @property
    def generate_init_message(self) -> Callable[..., Message]: ...
    @property
    def a_generate_init_message(self) -> Callable[..., Awaitable[Message]]: ...
    @property
    def _summarize_chat(self) -> Callable[..., Any]: ...
    @property
    def _a_summarize_chat(self) -> Callable[..., Awaitable[Any]]: ...
    @property
    def _prepare_chat(self) -> Callable[..., None]: ...
    def _raise_exception_on_async_reply_functions(self) -> None: ...


def chat_steps(
    sender: Chatter, recipient: Chatter, message: FirstMessage, options: ChatOptions
) -> Steps[ChatResult]:
    """Hold a chat; see `ConversableAgent.initiate_chat`."""
    yield Step(lambda: _refuse_async((sender, recipient)), _refuse_nothing)
    check_summary_method(options.summary_method, sender, recipient)
    chat = genai_span("invoke_workflow", sender.name, {"gen_ai.agent.name": sender.name})
    with chat, _cache_of((sender, recipient), options.cache):
        sender._prepare_chat(
            recipient, options.clear_history, reply_at_receive=options.max_turns is None
        )
        yield from _turn_steps(sender, recipient, message, options)
        summarize = Step(sender._summarize_chat, sender._a_summarize_chat)
        summary = yield from summarize(
            options.summary_method, options.summary_args, recipient, options.cache
        )
    return ChatResult(
        chat_history=[*sender.chat_messages[recipient]],
        summary=summary,
        cost=gather_usage_summary((sender, recipient)),
        human_input=[*sender._human_input],
    )


def _turn_steps(
    sender: Chatter, recipient: Chatter, message: FirstMessage, options: ChatOptions
) -> Steps[None]:
    """Send the messages of `sender`. Without `max_turns` it is the first one, which is answered."""
    send = Step(sender.send, sender.a_send)
    reply = Step(sender.generate_reply, sender.a_generate_reply)
    is_counted = options.max_turns is not None
    for turn in range(options.max_turns if options.max_turns is not None else 1):
        if turn == 0:
            sent = yield from _first_message_steps(sender, recipient, message, options.context)
        else:
            sent = yield from reply(messages=sender.chat_messages[recipient], sender=recipient)
        if sent is None:
            return
        request = {"request_reply": True} if is_counted else {}
        yield from send(sent, recipient, silent=options.silent, **request)


def _first_message_steps(
    sender: Chatter, recipient: Chatter, message: FirstMessage, context: Context
) -> Steps[Message]:
    if not callable(message):
        generate = Step(sender.generate_init_message, sender.a_generate_init_message)
        return (yield from generate(message, **context))
    return (yield from call_function(message, sender, recipient, context))


def _refuse_async(agents: Iterable[Chatter]) -> None:
    for agent in agents:
        agent._raise_exception_on_async_reply_functions()


async def _refuse_nothing() -> None:
    """Do nothing: an asynchronous chat has all reply functions."""


def init_message_steps(ask: Step, message: Message) -> Steps[ChatMessage | str]:
    """Return `message`; ask a person if it is None."""
    if message is not None:
        return message
    try:
        return (yield from ask(">"))
    except EOFError as error:
        error.add_note("No message= was given, so a person was asked for it. Pass message=.")
        raise


def warn_of_misspelling(given: Iterable[str], **options: object) -> None:
    """Warn of a name in `given` that is close to an option that is None."""
    missing = [name for name, value in options.items() if value is None]
    for name in given:
        for meant in difflib.get_close_matches(name, missing, n=1, cutoff=0.8):
            warnings.warn(
                f"initiate_chat() has no option {name!r}. Did you mean {meant}=?",
                UserWarning,
                stacklevel=4,
            )


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
