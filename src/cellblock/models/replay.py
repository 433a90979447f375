"""ReplayChatCompletionClient: answers from a list, for tests and examples."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from pydantic import TypeAdapter

from .client import (
    ChatCompletionClient,
    ModelInfo,
    validate_model_info,
    with_parameters_of,
)
from .messages import CreateResult, LLMMessage, RequestUsage
from .model_request import ModelRequest, check_messages
from .tool_schema import ToolLike

_COMPLETIONS = TypeAdapter(list[str | CreateResult])
_CONTEXT_TOKENS = 10_000


class ReplayChatCompletionClient(ChatCompletionClient):
    """Return the items of `chat_completions` in order, whatever is asked.

    A text becomes a `CreateResult`, whose tokens are the words. `create` and `create_stream` raise
    `ValueError` when no item is left; `reset` starts again.
    """

    component_type: ClassVar[str] = "replay_chat_completion_client"

    def __init__(
        self,
        chat_completions: Sequence[str | CreateResult],
        model_info: ModelInfo | None = None,
    ) -> None:
        if isinstance(chat_completions, str):
            raise ValueError("chat_completions must be a list of answers, not a text. Pass [text].")
        if model_info is not None:
            validate_model_info(model_info)
        self.chat_completions = list(chat_completions)
        self.provided_message_count = len(self.chat_completions)
        self._model_info = model_info or ModelInfo(
            vision=False,
            function_calling=False,
            json_output=False,
            family="unknown",
            structured_output=False,
        )
        self._cached = True
        self._create_calls: list[dict[str, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Start again with the first answer, and count tokens from 0."""
        self._next = 0
        self._last_usage = RequestUsage(0, 0)
        self._total_usage = RequestUsage(0, 0)

    def set_cached_bool_value(self, value: bool) -> None:
        """Set the field `cached` of the answers that are made from texts."""
        self._cached = value

    @property
    def create_calls(self) -> list[dict[str, Any]]:
        """The arguments of all calls of `create` and `create_stream`, in order."""
        return self._create_calls

    @with_parameters_of(ChatCompletionClient.create)
    async def create(self, *arguments: Any, **options: Any) -> CreateResult:
        """Return the next answer. Raise `ValueError` if none is left."""
        request = ModelRequest(*arguments, **options)
        check_messages(request.messages)
        request.raise_if_cancelled()
        item = self._next_item()
        self._create_calls.append(
            {
                "messages": list(request.messages),
                "tools": list(request.tools),
                "tool_choice": request.tool_choice,
                "json_output": request.json_output,
                "extra_create_args": dict(request.extra_create_args or {}),
                "cancellation_token": request.cancellation_token,
            }
        )
        self._next += 1
        return self._result(item, request.messages)

    @with_parameters_of(ChatCompletionClient.create)
    async def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the words of the next answer if it is a text, then the whole answer.

        A `CreateResult` in the list is yielded as it is, without pieces of its text.
        """
        request = ModelRequest(*arguments, **options)
        item = self._next_item()
        result = await self.create(*arguments, **options)
        words = item.split() if isinstance(item, str) else []
        for number, word in enumerate(words, start=1):
            request.raise_if_cancelled()
            yield word if number == len(words) else f"{word} "
        request.raise_if_cancelled()
        yield result

    def _next_item(self) -> str | CreateResult:
        if self._next >= len(self.chat_completions):
            raise ValueError("No more mock responses available")
        return self.chat_completions[self._next]

    def _result(self, item: str | CreateResult, messages: Sequence[LLMMessage]) -> CreateResult:
        is_text = isinstance(item, str)
        answer_tokens = len(item.split()) if is_text else item.usage.completion_tokens
        self._last_usage = RequestUsage(self.count_tokens(messages), answer_tokens)
        self._total_usage += self._last_usage
        if not is_text:
            return item
        return CreateResult(
            finish_reason="stop", content=item, usage=self._last_usage, cached=self._cached
        )

    async def close(self) -> None:
        """Do nothing."""

    def actual_usage(self) -> RequestUsage:
        """Return the tokens of the last answer."""
        return self._last_usage

    def total_usage(self) -> RequestUsage:
        """Return the tokens of all answers."""
        return self._total_usage

    def count_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return the number of words in the messages whose content is text."""
        return sum(
            len(message.content.split()) for message in messages if isinstance(message.content, str)
        )

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return 10000 minus the tokens that all answers used, at least 0."""
        used = self._total_usage.prompt_tokens + self._total_usage.completion_tokens
        return max(0, _CONTEXT_TOKENS - used)

    @property
    def model_info(self) -> ModelInfo:
        """What the model claims to be able to do."""
        return self._model_info

    def _to_config(self) -> dict[str, object]:
        completions = _COMPLETIONS.dump_python(self.chat_completions, mode="json")
        return {"chat_completions": completions, "model_info": dict(self._model_info)}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        completions = _COMPLETIONS.validate_python(config["chat_completions"])
        return cls(completions, cast(ModelInfo | None, config.get("model_info")))
