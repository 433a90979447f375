"""ChatCompletionClient: one interface to every chat model."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, ParamSpec, Required, TypedDict, TypeVar

from pydantic import BaseModel

from ..cancellation import Token
from ..components import Component
from ..tracing import Attributes
from .chat_spans import trace_requests
from .messages import CreateResult, LLMMessage, RequestUsage
from .tool_schema import ToolLike

P = ParamSpec("P")
T = TypeVar("T")
ToolChoice = ToolLike | Literal["auto", "required", "none"]
JsonOutput = bool | type[BaseModel] | None


class ModelInfo(TypedDict, total=False):
    """What a model can do.

    vision                     accepts images
    function_calling           accepts tools
    json_output                can be asked for any JSON
    family                     a constant of `ModelFamily`, or another name
    structured_output          can be asked for JSON of a given schema
    multiple_system_messages   accepts several system messages that are not in a row; None: unknown
    """

    vision: Required[bool]
    function_calling: Required[bool]
    json_output: Required[bool]
    family: Required[str]
    structured_output: Required[bool]
    multiple_system_messages: bool | None


# `ModelInfo.__required_keys__` is empty, because annotations are text in this module.
_REQUIRED_FIELDS = set(ModelInfo.__annotations__) - {
    "multiple_system_messages",
    "structured_output",
}


def validate_model_info(model_info: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a required field of `ModelInfo` is missing.

    Warn if it lacks `structured_output`, which counts as False then: AutoGen 0.4.7 added it.
    """
    missing = sorted(_REQUIRED_FIELDS - set(model_info))
    if missing:
        raise ValueError(f"model_info lacks {', '.join(missing)}. See cellblock.models.ModelInfo.")
    if "structured_output" not in model_info:
        warnings.warn("model_info lacks structured_output: False is assumed.", stacklevel=2)


def with_parameters_of(
    function: Callable[P, Any],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Return a decorator for a function that takes what `function` takes, and passes it on."""

    def decorate(passing: Callable[..., T]) -> Callable[P, T]:
        passing.__signature__ = inspect.signature(function)  # pyright: ignore[reportFunctionMemberAccess] - inspect reads it
        return passing

    return decorate


def raise_if_cancelled(token: Token | None) -> None:
    """Raise `asyncio.CancelledError` if `token` is cancelled."""
    if token is not None and token.is_cancelled():
        raise asyncio.CancelledError("The cancellation token was cancelled.")


class ChatCompletionClient(Component, ABC):
    """Ask a chat model for answers.

    Every method raises `ModelError` if the service cannot be reached or refuses the request, and
    `asyncio.CancelledError` if the token is cancelled. A client can be used from many tasks of one
    event loop at once.
    """

    component_type: ClassVar[str] = "model"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        trace_requests(cls)

    @abstractmethod
    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[ToolLike] = (),
        tool_choice: ToolChoice = "auto",
        json_output: JsonOutput = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: Token | None = None,
    ) -> CreateResult:
        """Return the model's answer to `messages`.

        tools               the tools that the model may call
        tool_choice         "auto", "required" (any tool), "none", or the tool to call
        json_output         True for any JSON; a pydantic class for JSON of its schema
        extra_create_args   more arguments of the service, which win over those of the client

        Raise `ValueError` if the model does not support the request, according to `model_info`.
        """

    @abstractmethod
    @with_parameters_of(create)
    def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer in pieces of text, then the whole answer as a `CreateResult`.

        Arguments and errors are those of `create`.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""

    @abstractmethod
    def actual_usage(self) -> RequestUsage:
        """Return the tokens that requests to the service used; answers of a cache do not count."""

    @abstractmethod
    def total_usage(self) -> RequestUsage:
        """Return the tokens of all answers, those of a cache included."""

    @abstractmethod
    def count_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return about how many tokens `messages` and `tools` have."""

    @abstractmethod
    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return about how many tokens are left for the answer."""

    def span_attributes(self, extra: Mapping[str, Any]) -> Attributes:
        """Return what the span of a request with the `extra_create_args` says about the model."""
        return {"gen_ai.provider.name": type(self).__name__}

    @property
    @abstractmethod
    def model_info(self) -> ModelInfo:
        """What the model can do."""

    @property
    def capabilities(self) -> ModelInfo:
        """Deprecated: `model_info`, under the name that AutoGen had before 0.4.7."""
        message = "capabilities is deprecated, use model_info instead"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.model_info
