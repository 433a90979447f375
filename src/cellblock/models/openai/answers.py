"""The answers of a server that speaks OpenAI's chat completions protocol, validated.

Only the fields that are read; servers add others, and leave out most of them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from ..messages import ChatCompletionTokenLogprob


class FunctionPart(BaseModel):
    """The function of a tool call; in a stream a piece of it."""

    name: str | None = None
    arguments: str | None = None


class ToolCallPart(BaseModel):
    """A tool call; in a stream a piece of the one that `index` names.

    `extra_content` has Gemini's signed thoughts, which it wants back.
    """

    index: int | None = None
    id: str | None = None
    function: FunctionPart = FunctionPart()
    extra_content: dict[str, Any] | None = None


class MessagePart(BaseModel):
    """What the model says; in a stream a piece of it.

    `reasoning_content` (DeepSeek, llama.cpp) and `reasoning` (vLLM, OpenRouter) mean the same.
    """

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallPart] | None = None


class Logprobs(BaseModel):
    """The log probabilities of the tokens."""

    content: list[ChatCompletionTokenLogprob] | None = None


class CompletionUsage(BaseModel):
    """The tokens of the request."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Choice(BaseModel):
    """One of the alternative answers; only the first one is read."""

    finish_reason: str | None = None
    message: MessagePart
    logprobs: Logprobs | None = None


class Completion(BaseModel):
    """An answer that is not streamed."""

    choices: list[Choice] = Field(min_length=1)
    usage: CompletionUsage | None = None


class ChunkChoice(BaseModel):
    """A piece of one of the alternative answers."""

    index: int = 0
    finish_reason: str | None = None
    delta: MessagePart | None = None
    logprobs: Logprobs | None = None


class CompletionChunk(BaseModel):
    """A piece of a streamed answer. The last one may have the usage and no choice."""

    choices: list[ChunkChoice] | None = None
    usage: CompletionUsage | None = None
