"""Summaries: what a chat came to, in a few words."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

from ..agent import ChatMessage
from ..agent_state import AgentState
from ..steps import Step, Steps, run, run_async

SummaryMethod = str | Callable[..., Any] | None
"""`"last_msg"`, `"reflection_with_llm"`, a function (sender, recipient, arguments), or None."""

UNKNOWN_METHOD = (
    "summary_method must be a string chosen from 'reflection_with_llm' or 'last_msg' "
    "or a callable, or None."
)


class Summaries(AgentState):
    """The part of an agent that summarizes its chats."""

    def _summary_steps(
        self, method: SummaryMethod, arguments: Mapping[str, Any], recipient: AgentState
    ) -> Steps[Any]:
        if method is None:
            return ""
        if method == "last_msg":
            return self._last_msg_as_summary(self, recipient, arguments)
        if method == "reflection_with_llm":
            return (yield from self._reflection_summary_steps(arguments, recipient))
        if not callable(method):
            raise ValueError(UNKNOWN_METHOD)
        return (yield from call_function(method, self, recipient, dict(arguments)))

    def _summarize_chat(
        self,
        summary_method: SummaryMethod,
        summary_args: Mapping[str, Any] | None,
        recipient: AgentState,
        cache: Any = None,
    ) -> Any:
        arguments = _with_cache(summary_args, cache)
        return run(self._summary_steps(summary_method, arguments, recipient))

    async def _a_summarize_chat(
        self,
        summary_method: SummaryMethod,
        summary_args: Mapping[str, Any] | None,
        recipient: AgentState,
        cache: Any = None,
    ) -> Any:
        arguments = _with_cache(summary_args, cache)
        return await run_async(self._summary_steps(summary_method, arguments, recipient))

    @staticmethod
    def _last_msg_as_summary(
        sender: AgentState, recipient: AgentState, summary_args: Mapping[str, Any]
    ) -> str:
        try:
            return message_summary(recipient.last_message(cast(Any, sender)) or {})
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            _warn_no_summary("last_msg", error)
            return ""

    @staticmethod
    def _reflection_with_llm_as_summary(
        sender: Summaries, recipient: AgentState, summary_args: Mapping[str, Any]
    ) -> str:
        return run(sender._reflection_summary_steps(summary_args, recipient))

    def _reflection_summary_steps(
        self, arguments: Mapping[str, Any], recipient: AgentState
    ) -> Steps[str]:
        prompt = arguments.get("summary_prompt") or self.DEFAULT_SUMMARY_PROMPT
        role = arguments.get("summary_role")
        if not isinstance(prompt, str):
            raise ValueError("The summary_prompt must be a string.")
        if role and not isinstance(role, str):
            raise ValueError("The summary_role in summary_arg must be a string.")
        messages = recipient.chat_messages_for_summary(cast(Any, self))
        reflect = Step(self._reflection_with_llm, self._a_reflection_with_llm)
        cache = arguments.get("cache")
        try:
            return (yield from reflect(prompt, messages, recipient, cache, role))
        except Exception as error:  # of a service, or of a model class of yours
            _warn_no_summary("reflection_with_llm", error)
            return ""

    def _reflection_with_llm(
        self,
        prompt: str,
        messages: list[ChatMessage],
        llm_agent: AgentState | None = None,
        cache: Any = None,
        role: str | None = None,
    ) -> str:
        return run(self._answer_steps_to(prompt, messages, llm_agent, cache, role))

    async def _a_reflection_with_llm(
        self,
        prompt: str,
        messages: list[ChatMessage],
        llm_agent: AgentState | None = None,
        cache: Any = None,
        role: str | None = None,
    ) -> str:
        return await run_async(self._answer_steps_to(prompt, messages, llm_agent, cache, role))

    def _answer_steps_to(
        self,
        prompt: str,
        messages: list[ChatMessage],
        llm_agent: AgentState | None,
        cache: Any,
        role: str | None,
    ) -> Steps[str]:
        client = (llm_agent.client if llm_agent else None) or self.client
        if client is None:
            raise ValueError("No OpenAIWrapper client is found.")
        question = [*messages, {"role": role or "system", "content": prompt}]
        ask = Step(self._generate_oai_reply_from_client, self._a_generate_oai_reply_from_client)
        reply: str | ChatMessage | None = yield from ask(client, question, cache)
        return message_summary(reply) if isinstance(reply, dict) else reply or ""


def check_summary_method(method: SummaryMethod, sender: AgentState, recipient: AgentState) -> None:
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


def _with_cache(arguments: Mapping[str, Any] | None, cache: Any) -> dict[str, Any]:
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
