"""The answer of a model in the form of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from ...models.messages import JsonObject, without_none


class CalledFunction(BaseModel):
    """The function that the model calls. `arguments` is JSON text that the model wrote."""

    arguments: str
    name: str


class ChatCompletionToolCall(BaseModel):
    """A request of the model to call a tool. The result refers to `id`.

    `extra_content` goes back to the service with the call; see `FunctionCall`.
    """

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"
    extra_content: JsonObject | None = Field(default=None, repr=False)

    @model_serializer(mode="wrap")
    def _to_dict(self, serialize: SerializerFunctionWrapHandler) -> JsonObject:
        return without_none(serialize(self))


class ChatCompletionMessage(BaseModel):
    """What the model says: text, calls of tools, or the call of a function in the old style."""

    content: str | None = None
    role: Literal["assistant"] = "assistant"
    function_call: CalledFunction | None = None
    tool_calls: list[ChatCompletionToolCall] | None = None


class ChatCompletionChoice(BaseModel):
    """One of the alternative answers."""

    finish_reason: str
    index: int = 0
    message: ChatCompletionMessage
    logprobs: Any = None


class ChatCompletionUsage(BaseModel):
    """The tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """The answer to one request.

    cost                         in US dollars
    is_cached                    True if a cache or a recording of `cellblock.models` answered
    config_id                    number of the entry of `config_list` that answered
    pass_filter                  False if `filter_func` refused the answer
    message_retrieval_function   returns the texts, or the messages with calls
    """

    id: str
    choices: list[ChatCompletionChoice]
    created: int
    model: str
    object: Literal["chat.completion"] = "chat.completion"
    usage: ChatCompletionUsage
    cost: float = 0
    is_cached: bool = Field(default=False, exclude=True)
    config_id: int | None = None
    pass_filter: bool | None = None
    message_retrieval_function: Callable[[Any], list[Any]] | None = Field(
        default=None, exclude=True, repr=False
    )
