"""Messages to a chat model, and its answer. Data only.

The names and fields are those of `autogen_core.models` 0.7.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from .image import Image

JsonObject = dict[str, Any]
"""An object of JSON whose fields a service decides."""


@dataclass
class FunctionCall:
    """A request of the model to call a tool.

    id              identifies the call; the result refers to it
    arguments       the arguments, as JSON text that the model wrote
    name            the name of the tool
    extra_content   what the service wants back with the call, by its name: signed thoughts
    """

    id: str
    arguments: str
    name: str
    extra_content: JsonObject | None = field(default=None, repr=False, compare=False)

    @model_serializer(mode="wrap")
    def _to_dict(self, serialize: SerializerFunctionWrapHandler) -> JsonObject:
        return without_none(serialize(self))


def without_none(values: JsonObject) -> JsonObject:
    """Return `values` without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


class SystemMessage(BaseModel):
    """Instructions of the developer."""

    content: str
    type: Literal["SystemMessage"] = "SystemMessage"


class UserMessage(BaseModel):
    """What the user, another agent or a program says. `source` is the name of the speaker."""

    content: str | list[str | Image]
    source: str
    type: Literal["UserMessage"] = "UserMessage"


class AssistantMessage(BaseModel):
    """What the model answered: text, or the tool calls that it requests.

    `thought` is the model's reasoning, or the text with tool calls.
    """

    content: str | list[FunctionCall]
    thought: str | None = None
    source: str
    type: Literal["AssistantMessage"] = "AssistantMessage"


class FunctionExecutionResult(BaseModel):
    """The result of one tool call, as text for the model."""

    content: str
    name: str
    call_id: str
    is_error: bool | None = None


class FunctionExecutionResultMessage(BaseModel):
    """The results of the tool calls in the assistant message before."""

    content: list[FunctionExecutionResult]
    type: Literal["FunctionExecutionResultMessage"] = "FunctionExecutionResultMessage"


LLMMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | FunctionExecutionResultMessage,
    Field(discriminator="type"),
]

FinishReasons = Literal["stop", "length", "function_calls", "content_filter", "unknown"]


@dataclass
class RequestUsage:
    """Tokens that requests used."""

    prompt_tokens: int
    completion_tokens: int

    def __add__(self, other: RequestUsage) -> RequestUsage:
        return RequestUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass
class TopLogprob:
    """The log probability of one candidate token."""

    logprob: float
    bytes: list[int] | None = None


class ChatCompletionTokenLogprob(BaseModel):
    """The log probability of one token of the answer, and of the most likely candidates."""

    token: str
    logprob: float
    top_logprobs: list[TopLogprob] | None = None
    bytes: list[int] | None = None


class CreateResult(BaseModel):
    """The answer of a model.

    finish_reason   why the answer ends
    content         the text, or the tool calls that the model requests
    usage           tokens of this request
    cached          True if the answer comes from a cache or a recording
    thought         the model's reasoning, or the text with tool calls; None if there is none
    """

    finish_reason: FinishReasons
    content: str | list[FunctionCall]
    usage: RequestUsage
    cached: bool
    logprobs: list[ChatCompletionTokenLogprob] | None = None
    thought: str | None = None
