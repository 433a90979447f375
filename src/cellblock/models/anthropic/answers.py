"""The answers of Anthropic's messages interface, validated. Only the fields that are read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class ClaudeUsage(BaseModel):
    """The tokens of the request. Those that the service read from its cache are apart."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None

    def updated(self, later: ClaudeUsage | None) -> ClaudeUsage:
        """Return these tokens with what `later` says; the counts of a stream are totals."""
        return self.model_copy(update=later.model_dump(exclude_none=True) if later else {})


class ClaudeBlock(BaseModel):
    """A part of the answer: text, thinking, or a tool call (`tool_use`).

    Thinking has a signature; in a `redacted_thinking` part it is `data`, encrypted.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class ClaudeMessage(BaseModel):
    """An answer that is not streamed."""

    content: list[ClaudeBlock]
    stop_reason: str | None = None
    usage: ClaudeUsage | None = None


class ClaudeDelta(BaseModel):
    """What an event of a stream adds to a block or to the answer."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class ClaudeEvent(BaseModel):
    """An event of a stream."""

    type: str
    index: int | None = None
    message: ClaudeMessage | None = None
    content_block: ClaudeBlock | None = None
    delta: ClaudeDelta | None = None
    usage: ClaudeUsage | None = None
