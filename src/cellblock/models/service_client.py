"""What the clients of services share: checks of arguments, cancellation, usage, configurations."""

from __future__ import annotations

import asyncio
import contextlib
import re
import warnings
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Self, TypeVar, cast

from pydantic import SecretStr

from ..aio.running_loop import running_loop
from ..cancellation import Token, on_cancel
from ..errors import ComponentError
from ..tracing import Attributes
from .client import ChatCompletionClient, ModelInfo, with_parameters_of
from .messages import CreateResult, LLMMessage, RequestUsage
from .model_request import ModelRequest
from .service import Service
from .structured_output import checked_output
from .token_estimate import estimate_tokens
from .tool_schema import ToolLike

ResultT = TypeVar("ResultT")
_SECRET = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_MAY_HAVE_SECRETS = {"default_headers", "default_query", "extra_headers", "extra_query"}
# What is sent as the key to a server that asks for none: the SDKs demand one.
_NO_KEY = "none"


class ServiceClient(ChatCompletionClient):
    """A chat model behind an HTTP interface. `service` speaks its protocol."""

    def __init__(self, service: Service) -> None:
        self._service, self._usage = service, RequestUsage(0, 0)

    @with_parameters_of(ChatCompletionClient.create)
    async def create(self, *arguments: Any, **options: Any) -> CreateResult:
        """Return the model's answer. See `ChatCompletionClient.create`."""
        request = ModelRequest(*arguments, **options)
        request.check(self._service.model_info)
        request.raise_if_cancelled()
        return self._finish(
            await _run(self._service.send(request), request.cancellation_token), request
        )

    @with_parameters_of(ChatCompletionClient.create)
    async def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer in pieces, then whole. See `ChatCompletionClient.create_stream`.

        Reasoning that the service sends apart is yielded between `<think>` and `</think>`.
        """
        request = ModelRequest(*arguments, **options)
        request.check(self._service.model_info)
        request.raise_if_cancelled()
        async with contextlib.aclosing(self._service.stream(request)) as items:
            while (item := await _run(anext(items, None), request.cancellation_token)) is not None:
                yield item if isinstance(item, str) else self._finish(item, request)

    def _finish(self, result: CreateResult, request: ModelRequest) -> CreateResult:
        self._usage += result.usage
        return checked_output(result, request.json_output)

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        await self._service.sdk.close()

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
        service = self._service
        if service.context_window is None:
            raise ValueError(
                f"The context window of {service.model!r} is not known. "
                f"Pass context_window= to {type(self).__name__}."
            )
        return service.context_window - estimate_tokens(messages, tools)

    def span_attributes(self, extra: Mapping[str, Any]) -> Attributes:
        """See `ChatCompletionClient`."""
        return self._service.span_attributes(extra)

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return self._service.model_info

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._service.model!r})"

    def _to_config(self) -> dict[str, object]:
        arguments = self._service.arguments
        if "http_client" in arguments:
            raise ComponentError(
                "A client with http_client cannot be saved: it is an object. Create such a client "
                "in code."
            )
        config = dict[str, object]()
        for name, value in arguments.items():
            if name not in _MAY_HAVE_SECRETS:
                config[name] = value
            elif shown := {key: value[key] for key in value if not _SECRET.search(key)}:
                config[name] = shown
        return config

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

    An argument that the TypedDict `allowed` does not have is left out with a warning, as AutoGen
    leaves it out. A secret of asterisks is what remains of one in a saved configuration: it counts
    as not given.
    """
    names: frozenset[str] = allowed.__required_keys__ | allowed.__optional_keys__
    for name in arguments:
        if name not in names:
            close = get_close_matches(name, names, 1)
            warnings.warn(
                f"{owner.__name__} has no parameter {name!r}, and ignores it. "
                + (f"Did you mean {close[0]!r}? " if close else "")
                + "A field of the request goes into extra_body.",
                stacklevel=3,
            )
    if not isinstance(arguments.get("model"), str):
        raise ValueError(f"model is required for {owner.__name__}")
    plain = {
        name: value
        for name, value in arguments.items()
        if name in names and (name not in secrets or value == "")
    }
    return plain, {name: _to_secret(arguments.get(name)) for name in secrets}


def _to_secret(value: str | SecretStr | None) -> SecretStr | None:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    return SecretStr(text) if text == "" or (text and text.strip("*")) else None


def reveal(secret: SecretStr | None, *, own_server: bool = False) -> str | None:
    """Return the text of `secret`, for the service's SDK; None if there is none.

    An empty one says that a server of the user's asks for no key.
    """
    if secret is None:
        return None
    return secret.get_secret_value() or (_NO_KEY if own_server else None)


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
