"""Put a streamed answer together."""

from __future__ import annotations

from ..messages import CreateResult
from ..service_errors import EmptyStream
from .answers import (
    Choice,
    Completion,
    CompletionChunk,
    CompletionUsage,
    FunctionPart,
    Logprobs,
    MessagePart,
    ToolCallPart,
)
from .convert import to_result


class CompletionStream:
    """Collect chunks. A state machine without I/O."""

    def __init__(self) -> None:
        self._message = MessagePart()
        self._calls: list[ToolCallPart] = []
        self._logprobs = Logprobs()
        self._finish_reason: str | None = None
        self._usage: CompletionUsage | None = None
        self._is_reasoning = False
        self._has_choice = False

    def add(self, event: object) -> list[str]:
        """Add a chunk and return its text, with the reasoning between `<think>` and `</think>`."""
        chunk = CompletionChunk.model_validate(event)
        self._usage = chunk.usage or self._usage
        # Alternative answers (n=2) are not read.
        choice = next((choice for choice in chunk.choices or [] if choice.index == 0), None)
        if choice is None:
            return []
        self._has_choice = True
        self._finish_reason = choice.finish_reason or self._finish_reason
        if choice.logprobs and choice.logprobs.content:
            self._logprobs.content = (self._logprobs.content or []) + choice.logprobs.content
        delta = choice.delta or MessagePart()
        for call in delta.tool_calls or []:
            self._add_call(call)
        return self._add_text(delta)

    def _add_text(self, delta: MessagePart) -> list[str]:
        pieces: list[str] = []
        message = self._message
        if reasoning := delta.reasoning_content or delta.reasoning:
            pieces.append(reasoning if self._is_reasoning else f"<think>{reasoning}")
            self._is_reasoning = True
            message.reasoning_content = (message.reasoning_content or "") + reasoning
        if self._is_reasoning and (delta.content or delta.tool_calls or delta.refusal):
            pieces += self.end()
        if delta.content:
            message.content = (message.content or "") + delta.content
            pieces.append(delta.content)
        if delta.refusal:
            message.refusal = (message.refusal or "") + delta.refusal
            pieces.append(delta.refusal)
        return pieces

    def _add_call(self, part: ToolCallPart) -> None:
        """Add a piece to its call. Servers that send no index send whole calls."""
        known = next(
            (call for call in self._calls if part.index is not None and call.index == part.index),
            None,
        )
        if known is None and (part.index is not None or part.id or not self._calls):
            self._calls.append(part.model_copy(deep=True))
            return
        call = known or self._calls[-1]
        call.id = call.id or part.id
        call.extra_content = call.extra_content or part.extra_content
        call.function = FunctionPart(
            name=(call.function.name or "") + (part.function.name or ""),
            arguments=(call.function.arguments or "") + (part.function.arguments or ""),
        )

    def end(self) -> list[str]:
        """Return the text that closes the reasoning, if it is open."""
        was_reasoning, self._is_reasoning = self._is_reasoning, False
        return ["</think>"] if was_reasoning else []

    def result(self) -> CreateResult:
        """Return the whole answer. Raise `ValueError` if the service sent none, or not all."""
        if not self._has_choice:
            raise EmptyStream("the stream ended without an answer")
        if self._finish_reason is None:
            raise ValueError("the stream ended before the answer was complete")
        self._message.tool_calls = self._calls or None
        choice = Choice(
            finish_reason=self._finish_reason, message=self._message, logprobs=self._logprobs
        )
        return to_result(Completion(choices=[choice], usage=self._usage))
