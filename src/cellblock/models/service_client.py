"""What the clients of services share: checks of arguments, cancellation, errors, usage."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from ..aio.running_loop import running_loop
from ..cancellation import Token, on_cancel
from ..errors import ModelError
from .client import (
    ChatCompletionClient,
    ModelInfo,
    validate_model_info,
    with_parameters_of,
)
from .messages import CreateResult, LLMMessage, RequestUsage
from .model_family import KnownModel
from .model_request import ModelRequest
from .service_errors import ADVICE, raise_reported_error, service_errors
from .structured_output import checked_output
from .token_estimate import estimate_tokens
from .tool_schema import ToolLike

if TYPE_CHECKING:
    import httpx

ResultT = TypeVar("ResultT")
# Options of the SDKs, which `extra_create_args` may have too.
_SDK_OPTIONS = frozenset({"timeout", "extra_headers", "extra_query", "extra_body"})
_NAMED_FIELDS = frozenset({"model", "messages", "max_tokens"})
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


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


class ServiceClient(ChatCompletionClient):
    """A chat model behind an HTTP interface. Subclasses translate and send.

    service        name of the service, for messages to people
    service_host   the host of its address; at another, the protocol is spoken by another server
    arguments      the arguments of the client, without secrets
    """

    service: ClassVar[str]
    service_host: ClassVar[str | None] = None

    def __init__(self, arguments: Mapping[str, Any], known: KnownModel | None) -> None:
        self._model: str = arguments["model"]
        info: ModelInfo | None = arguments.get("model_info") or (known and known.info)
        if info is None:
            raise ValueError(
                "model_info is required when model name is not a valid "
                f"{self.service} model: {self._model!r}"
            )
        validate_model_info(info)
        self._model_info = info
        window: int | None = arguments.get("context_window")
        self._context_window = window or (known and known.context_window)
        self._arguments = {name: value for name, value in arguments.items() if value is not None}
        self._usage = RequestUsage(0, 0)
        self._client = self._open()

    @abstractmethod
    def _open(self) -> SdkClient:
        """Return the SDK's client."""

    @property
    @abstractmethod
    def _endpoint(self) -> Callable[..., Awaitable[Any]]:
        """The method of the SDK's client that asks the model."""

    @abstractmethod
    def _request_body(self, request: ModelRequest, *, stream: bool) -> dict[str, Any]:
        """Return the request in the service's form. Raise `ValueError` if it has none."""

    @abstractmethod
    def _read(self, answer: object, request: ModelRequest) -> CreateResult:
        """Return the service's answer. Raise `ValueError` if it has another shape."""

    @abstractmethod
    def _collector(self, request: ModelRequest) -> AnswerStream:
        """Return what puts a streamed answer together."""

    def _is_other_server(self) -> bool:
        """Return True if the address is not that of the service whose protocol this is."""
        host = urlsplit(str(self._client.base_url)).hostname
        return self.service_host is not None and host != self.service_host

    def _described_service(self) -> str:
        name = "The server" if self._is_other_server() else self.service
        return f"{name} at {str(self._client.base_url).rstrip('/')}"

    async def _send(self, request: ModelRequest) -> CreateResult:
        body = self._request_body(request, stream=False)
        with service_errors(self._described_service()):
            answer = _plain(await self._post(body, stream=False))
            raise_reported_error(self._described_service(), answer)
            return self._read(answer, request)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[str | CreateResult, None]:
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
            with contextlib.suppress(ValueError):  # the reader of the stream reports other content
                raise_reported_error(self._described_service(), json.loads(await response.aread()))

    async def _post(self, body: Mapping[str, Any], *, stream: bool) -> Any:
        options = {name: body[name] for name in _SDK_OPTIONS & set(body)}
        named = {name: body[name] for name in _NAMED_FIELDS & set(body)}
        # Everything else as it is, whatever the installed version of the SDK knows.
        rest = {name: body[name] for name in body if name not in options | named}
        options["extra_body"] = {**rest, **(options.get("extra_body") or {})}
        return await self._endpoint(**named, stream=stream, **options)

    @with_parameters_of(ChatCompletionClient.create)
    async def create(self, *arguments: Any, **options: Any) -> CreateResult:
        """Return the model's answer. See `ChatCompletionClient.create`."""
        request = ModelRequest(*arguments, **options)
        request.check(self._model_info)
        request.raise_if_cancelled()
        return self._finish(await _run(self._send(request), request.cancellation_token), request)

    @with_parameters_of(ChatCompletionClient.create)
    async def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer in pieces, then whole. See `ChatCompletionClient.create_stream`.

        Reasoning that the service sends apart is yielded between `<think>` and `</think>`.
        """
        request = ModelRequest(*arguments, **options)
        request.check(self._model_info)
        request.raise_if_cancelled()
        async with contextlib.aclosing(self._stream(request)) as items:
            while (item := await _run(anext(items, None), request.cancellation_token)) is not None:
                yield item if isinstance(item, str) else self._finish(item, request)

    def _finish(self, result: CreateResult, request: ModelRequest) -> CreateResult:
        self._usage += result.usage
        return checked_output(result, request.json_output)

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        await self._client.close()

    def actual_usage(self) -> RequestUsage:
        """Return the tokens of all answers."""
        return self._usage

    def total_usage(self) -> RequestUsage:
        """Return the tokens of all answers."""
        return self._usage

    def count_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return about how many tokens `messages` and `tools` have: a token for 4 bytes of text."""
        return estimate_tokens(messages, tools)

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return the size of the context window less `count_tokens`.

        Raise `ValueError` if the window is not known: pass `context_window=` to the client.
        """
        if self._context_window is None:
            raise ValueError(
                f"The context window of {self._model!r} is not known. "
                f"Pass context_window= to {type(self).__name__}."
            )
        return self._context_window - estimate_tokens(messages, tools)

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return self._model_info

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._model!r})"

    def _to_config(self) -> dict[str, object]:
        headers: Mapping[str, str] = self._arguments.get("default_headers", {})
        shown = {name: text for name, text in headers.items() if not _SECRET_HEADER.search(name)}
        rest = {key: value for key, value in self._arguments.items() if key != "default_headers"}
        return {**rest, **({"default_headers": shown} if shown else {})}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        # Saved by AutoGen, None means that nothing was given.
        given = {name: item for name, item in config.items() if item is not None}
        return cls(**cast(Any, given))


def split_secrets(
    owner: type[ServiceClient],
    arguments: Mapping[str, Any],
    allowed: type[Any],
    secrets: Sequence[str] = ("api_key",),
) -> tuple[dict[str, Any], dict[str, SecretStr | None]]:
    """Return `arguments` without the secrets, and the secrets.

    Raise `TypeError` for an argument that the TypedDict `allowed` does not have. A secret of
    asterisks is what remains of one in a saved configuration: it counts as not given.
    """
    names: frozenset[str] = allowed.__required_keys__ | allowed.__optional_keys__
    for name in arguments:
        if name not in names:
            raise TypeError(f"{owner.__name__} has no parameter {name!r}.")
    if not isinstance(arguments.get("model"), str):
        raise ValueError(f"model is required for {owner.__name__}")
    plain = {name: value for name, value in arguments.items() if name not in secrets}
    return plain, {name: _to_secret(arguments.get(name)) for name in secrets}


def _to_secret(value: str | SecretStr | None) -> SecretStr | None:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    return SecretStr(text) if text and text.strip("*") else None


def reveal(secret: SecretStr | None) -> str | None:
    """Return the text of `secret`, for the service's SDK."""
    return secret.get_secret_value() if secret else None


async def _run(awaitable: Awaitable[ResultT], token: Token | None) -> ResultT:
    """Return what `awaitable` returns. Cancel it if `token` is cancelled."""
    try:
        loop = running_loop()
    except RuntimeError:
        if asyncio.iscoroutine(awaitable):
            awaitable.close()
        raise
    task = asyncio.ensure_future(awaitable)
    with on_cancel(token, loop, task.cancel):
        return await task


def _plain(answer: object) -> object:
    """Return what the SDK read as JSON values. It does not check them."""
    return answer.model_dump(warnings=False) if isinstance(answer, BaseModel) else answer
