"""Put a streamed answer together."""

from __future__ import annotations

import json

from ..messages import CreateResult
from ..model_request import ModelRequest
from ..service_errors import EmptyStream
from .answers import ClaudeBlock, ClaudeEvent, ClaudeMessage, ClaudeUsage
from .convert import to_result


class ClaudeStream:
    """Collect events. A state machine without I/O."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._blocks: dict[int, ClaudeBlock] = {}
        self._arguments: dict[int, str] = {}
        self._stop_reason: str | None = None
        self._usage = ClaudeUsage()
        self._is_reasoning = False
        self._has_started = False

    def add(self, event: object) -> list[str]:
        """Add an event and return its text, with the thinking between `<think>` and `</think>`."""
        return self._add(ClaudeEvent.model_validate(event))

    def _add(self, event: ClaudeEvent) -> list[str]:
        if event.type == "message_start" and event.message:
            self._has_started = True
            self._usage = self._usage.updated(event.message.usage)
        elif event.type == "content_block_start" and event.content_block:
            block = event.content_block.model_copy(deep=True)
            self._blocks[event.index or 0] = block
            return self._show(block.thinking, block.text)
        elif event.type == "content_block_delta" and event.delta:
            return self._add_delta(event)
        elif event.type == "content_block_stop":
            return self.end()
        elif event.type == "message_delta":
            self._usage = self._usage.updated(event.usage)
            self._stop_reason = (event.delta and event.delta.stop_reason) or self._stop_reason
        return []

    def _add_delta(self, event: ClaudeEvent) -> list[str]:
        index, delta = event.index or 0, event.delta
        block = self._blocks.get(index)
        if block is None or delta is None:
            raise ValueError(f"the stream adds to block {index}, which was not started")
        block.text = (block.text or "") + (delta.text or "")
        block.thinking = (block.thinking or "") + (delta.thinking or "")
        block.signature = (block.signature or "") + (delta.signature or "")
        self._arguments[index] = self._arguments.get(index, "") + (delta.partial_json or "")
        return self._show(delta.thinking, delta.text)

    def _show(self, thinking: str | None, text: str | None) -> list[str]:
        pieces: list[str] = []
        if thinking:
            pieces.append(thinking if self._is_reasoning else f"<think>{thinking}")
            self._is_reasoning = True
        return [*pieces, text] if text else pieces

    def end(self) -> list[str]:
        """Return the text that closes the thinking, if it is open."""
        was_reasoning, self._is_reasoning = self._is_reasoning, False
        return ["</think>"] if was_reasoning else []

    def result(self) -> CreateResult:
        """Return the whole answer. Raise `ValueError` if the service sent none, or not all."""
        if not self._has_started:
            raise EmptyStream("the stream ended without an answer")
        if self._stop_reason is None:
            raise ValueError("the stream ended before the answer was complete")
        for index, text in self._arguments.items():
            if text and self._blocks[index].type == "tool_use":
                self._blocks[index].input = _read_arguments(text, self._stop_reason)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        message = ClaudeMessage(content=blocks, stop_reason=self._stop_reason, usage=self._usage)
        return to_result(message, self._request)


def _read_arguments(text: str, stop_reason: str | None) -> dict[str, object]:
    try:
        return json.loads(text)
    except ValueError:
        if stop_reason == "max_tokens":  # cut off, as OpenAI's would be
            return {}
        raise
