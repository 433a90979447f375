"""Summaries: what a chat came to, in a few words."""

# Private methods of agents have AutoGen's names, and users override them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from ..agent import ChatMessage
from ..steps import Step, Steps, run

if TYPE_CHECKING:
    from ..models.model_wrapper import OpenAIWrapper

SummaryMethod = str | Callable[..., Any] | None
"""`"last_msg"`, `"reflection_with_llm"`, a function (sender, recipient, arguments), or None."""

UNKNOWN_METHOD = (
    "summary_method must be a string chosen from 'reflection_with_llm' or 'last_msg' "
    "or a callable, or None."
)


class Summarizes(Protocol):
    """An agent that summarizes its chats."""

    DEFAULT_SUMMARY_PROMPT: ClassVar[str]
    client: OpenAIWrapper | None

    def last_message(self, agent: Any = None) -> ChatMessage | None: ...
    def chat_messages_for_summary(self, agent: Any) -> list[ChatMessage]: ...
    @staticmethod
    def _last_msg_as_summary(sender: Any, recipient: Any, summary_args: Any) -> str: ...
    def _reflection_with_llm(
        self, prompt: str, messages: list[ChatMessage], llm_agent: Any, cache: Any, role: str | None
    ) -> str: ...
    def _a_reflection_with_llm(
        self, prompt: str, messages: list[ChatMessage], llm_agent: Any, cache: Any, role: str | None
    ) -> Awaitable[str]: ...


def summary_steps(
    sender: Summarizes,
    recipient: Summarizes,
    method: SummaryMethod,
    arguments: Mapping[str, Any],
) -> Steps[Any]:
    """Return the summary of a chat that `sender` opened."""
    if method is None:
        return ""
    if method == "last_msg":
        return sender._last_msg_as_summary(sender, recipient, arguments)
    if method == "reflection_with_llm":
        return (yield from reflection_steps(sender, recipient, arguments))
    if not callable(method):
        raise ValueError(UNKNOWN_METHOD)
    return (yield from call_function(method, sender, recipient, dict(arguments)))


def last_msg_as_summary(
    sender: Summarizes, recipient: Summarizes, summary_args: Mapping[str, Any]
) -> str:
    """Return the text of the last message; "" with a warning if there is none."""
    try:
        return message_summary(recipient.last_message(sender) or {})
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        _warn_no_summary("last_msg", error)
        return ""


def reflection_as_summary(
    sender: Summarizes, recipient: Summarizes, summary_args: Mapping[str, Any]
) -> str:
    """Return what a model says about the chat; "" with a warning if it cannot be asked."""
    return run(reflection_steps(sender, recipient, summary_args))


def reflection_steps(
    sender: Summarizes, recipient: Summarizes, arguments: Mapping[str, Any]
) -> Steps[str]:
    """Ask a model for the summary of a chat."""
    prompt = arguments.get("summary_prompt") or sender.DEFAULT_SUMMARY_PROMPT
    role = arguments.get("summary_role")
    if not isinstance(prompt, str):
        raise ValueError("The summary_prompt must be a string.")
    if role and not isinstance(role, str):
        raise ValueError("The summary_role in summary_arg must be a string.")
    messages = recipient.chat_messages_for_summary(sender)
    reflect = Step(sender._reflection_with_llm, sender._a_reflection_with_llm)
    cache = arguments.get("cache")
    try:
        return (yield from reflect(prompt, messages, recipient, cache, role))
    except Exception as error:  # of a service, or of a model class of yours
        _warn_no_summary("reflection_with_llm", error)
        return ""


def answer_text_steps(
    prompt: str,
    messages: list[ChatMessage],
    client: OpenAIWrapper | None,
    cache: Any,
    role: str | None,
    ask: Step,
) -> Steps[str]:
    """Return the text that `client` answers to `messages` and `prompt`.

    `ask` is the agent's `_generate_oai_reply_from_client`.
    """
    if client is None:
        raise ValueError("No OpenAIWrapper client is found.")
    question = [*messages, {"role": role or "system", "content": prompt}]
    reply: str | ChatMessage | None = yield from ask(client, question, cache)
    return message_summary(reply) if isinstance(reply, dict) else reply or ""


def check_summary_method(method: SummaryMethod, sender: Summarizes, recipient: Summarizes) -> None:
    """Raise AssertionError if `method` is unknown, or needs a model and neither agent has one."""
    if method is None or callable(method) or method == "last_msg":
        return
    if method != "reflection_with_llm":
        raise AssertionError(UNKNOWN_METHOD)
    if sender.client is None and recipient.client is None:
        raise AssertionError(
            "llm client must be set in either the recipient or sender when summary_method is "
            "reflection_with_llm."
        )


def with_cache(arguments: Mapping[str, Any] | None, cache: Any) -> dict[str, Any]:
    """Return the arguments of a summary, with the `cache` of the chat unless they have one."""
    given = dict(arguments or {})
    given.setdefault("cache", cache)
    return given


def _warn_no_summary(method: str, error: Exception) -> None:
    warnings.warn(
        f"Cannot extract summary using {method}: {error}. Using an empty str as summary.",
        UserWarning,
        stacklevel=3,
    )


def message_summary(message: ChatMessage) -> str:
    """Return the text of a message without the word TERMINATE, "" if there is no text."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content.replace("TERMINATE", "")
    parts = cast("list[ChatMessage]", content)
    return "\n".join(
        str(part["text"]).replace("TERMINATE", "") for part in parts if part.get("type") == "text"
    )


def call_function(function: Callable[..., Any], *arguments: Any) -> Steps[Any]:
    """Call a function of the user; an asynchronous one only in an asynchronous chat."""

    def call() -> Any:
        result = function(*arguments)
        if not inspect.iscoroutine(result):
            return result
        result.close()
        raise TypeError(
            f"The function {getattr(function, '__name__', function)!r} is asynchronous. Open the "
            "chat with a_initiate_chat(), or pass a function that is not."
        )

    async def a_call() -> Any:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    return (yield Step(call, a_call))
