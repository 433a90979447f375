"""Service: asks a chat model over HTTP, in its own protocol."""

from __future__ import annotations

import json
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

from pydantic import BaseModel

from ..errors import ModelError
from ..tracing import Attributes
from .chat_spans import parameter_attributes
from .client import ModelInfo, validate_model_info
from .messages import CreateResult
from .model_family import KnownModel
from .model_request import ModelRequest
from .service_errors import ADVICE, raise_reported_error, service_errors

if TYPE_CHECKING:
    import httpx

# Options of the SDKs, which `extra_create_args` may have too.
_SDK_OPTIONS = frozenset({"timeout", "extra_headers", "extra_query", "extra_body"})
_EVENT = re.compile("^data:", re.MULTILINE)
_NAMED_FIELDS = frozenset({"model", "messages", "max_tokens"})
# The conventions' names of services.
_PROVIDERS = {
    "Anthropic": "anthropic",
    "Azure OpenAI": "azure.ai.openai",
    "OpenAI": "openai",
}
RequestBody = dict[str, Any]
"""A request in the form of the service."""


class SdkClient(Protocol):
    """What the clients of the SDKs have in common."""

    @property
    def base_url(self) -> object:
        """The address of the service."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class AnswerStream(Protocol):
    """Puts a streamed answer together: a state machine without I/O."""

    def add(self, event: object) -> list[str]:
        """Add what the service sent and return its text.

        Reasoning is between `<think>` and `</think>`. Raise `ValueError` for another shape.
        """
        ...

    def end(self) -> list[str]:
        """Return the text that closes the reasoning, if it is open."""
        ...

    def result(self) -> CreateResult:
        """Return the whole answer. Raise `ValueError` if the service sent none, or not all."""
        ...


class Service(ABC):
    """One service's protocol over its SDK. Subclasses translate.

    name        name of the service, for messages to people
    host        the host of its address; at another, the protocol is spoken by another server
    arguments   the arguments of the client, without secrets
    known       what is known of the model
    connect     returns the SDK's client, for the arguments that were given
    """

    def __init__(
        self,
        name: str,
        host: str | None,
        arguments: Mapping[str, Any],
        known: KnownModel | None,
        connect: Callable[[Mapping[str, Any]], SdkClient],
    ) -> None:
        self._name, self._host = name, host
        self.model: str = arguments["model"]
        info = _given_model_info(arguments) or (known and known.info)
        if info is None:
            raise ValueError(
                f"model_info is required when model name is not a valid {name} model: "
                f"{self.model!r}"
            )
        validate_model_info(info)
        self.model_info = info
        window: int | None = arguments.get("context_window")
        self.context_window = window or (known and known.context_window)
        self.arguments = {name: value for name, value in arguments.items() if value is not None}
        self.sdk = connect(self.arguments)

    @property
    @abstractmethod
    def _endpoint(self) -> Callable[..., Awaitable[Any]]:
        """The method of the SDK's client that asks the model."""

    @abstractmethod
    def _request_body(self, request: ModelRequest, *, stream: bool) -> RequestBody:
        """Return the request in the service's form. Raise `ValueError` if it has none."""

    @abstractmethod
    def _read(self, answer: object, request: ModelRequest) -> CreateResult:
        """Return the service's answer. Raise `ValueError` if it has another shape."""

    @abstractmethod
    def _collector(self, request: ModelRequest) -> AnswerStream:
        """Return what puts a streamed answer together."""

    def is_other_server(self) -> bool:
        """Return True if the address is not that of the service whose protocol this is."""
        host = urlsplit(str(self.sdk.base_url)).hostname
        return self._host is not None and host != self._host

    def span_attributes(self, extra: Mapping[str, Any]) -> Attributes:
        """Return what the span of a request with the `extra_create_args` says about the model."""
        arguments = {**self.arguments, **extra}
        address = urlsplit(str(self.sdk.base_url))
        return {
            "gen_ai.provider.name": _PROVIDERS.get(self._name, self._name),
            "gen_ai.request.model": str(arguments["model"]),
            "server.address": address.hostname,
            "server.port": address.port or {"http": 80}.get(address.scheme, 443),
            **parameter_attributes(arguments),
        }

    def _described_service(self) -> str:
        name = "The server" if self.is_other_server() else self._name
        return f"{name} at {str(self.sdk.base_url).rstrip('/')}"

    async def send(self, request: ModelRequest) -> CreateResult:
        """Return the answer. Raise `ModelError`."""
        body = self._request_body(request, stream=False)
        with service_errors(self._described_service()):
            answer = _plain(await self._post(body, stream=False))
            raise_reported_error(self._described_service(), answer)
            return self._read(answer, request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer in pieces of text, then whole. Raise `ModelError`."""
        body = self._request_body(request, stream=True)
        collected = self._collector(request)
        with service_errors(self._described_service()):
            async with await self._post(body, stream=True) as events:
                await self._check_stream(events.response)
                async for event in events:
                    for piece in collected.add(_plain(event)):
                        yield piece
            for piece in collected.end():
                yield piece
            yield collected.result()

    async def _check_stream(self, response: httpx.Response) -> None:
        """Raise `ModelError` if the service answered with an error or a web page, not a stream."""
        kind = response.headers.get("content-type", "")
        if kind.startswith("text/html"):
            text, advice = f"{self._described_service()} sent a web page.", ADVICE["address"]
            raise ModelError(f"{text} {advice}", advice=advice)
        if kind.startswith("application/json"):
            text = (await response.aread()).decode(errors="replace")
            if not _EVENT.search(text):  # a stream under a wrong name
                raise_reported_error(self._described_service(), json.loads(text))

    async def _post(self, body: Mapping[str, Any], *, stream: bool) -> Any:
        options = {name: body[name] for name in _SDK_OPTIONS & set(body)}
        named = {name: body[name] for name in _NAMED_FIELDS & set(body)}
        # Everything else as it is, whatever the installed version of the SDK knows.
        rest = {name: body[name] for name in body if name not in options | named}
        options["extra_body"] = {**rest, **(options.get("extra_body") or {})}
        return await self._endpoint(**named, stream=stream, **options)


def _given_model_info(arguments: Mapping[str, Any]) -> ModelInfo | None:
    """Return `model_info`, or what AutoGen's deprecated `model_capabilities` says."""
    info, capabilities = arguments.get("model_info"), arguments.get("model_capabilities")
    if capabilities is None:
        return info
    if info is not None:
        raise ValueError("model_capabilities and model_info are mutually exclusive")
    message = "model_capabilities is deprecated, use model_info instead"
    warnings.warn(message, DeprecationWarning, stacklevel=5)
    return cast(ModelInfo, {"structured_output": False, **capabilities, "family": "unknown"})


def _plain(answer: object) -> object:
    """Return what the SDK read as JSON values. It does not check them."""
    return answer.model_dump(warnings=False) if isinstance(answer, BaseModel) else answer
