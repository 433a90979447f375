"""OpenAIChatCompletionClient: OpenAI, and every server that speaks its protocol."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from ...errors import ModelError
from ..messages import CreateResult
from ..model_family import openai_model
from ..model_request import ModelRequest
from ..service_client import ServiceClient, reveal, split_secrets
from ..service_errors import EmptyStream
from .answers import Completion
from .arguments import CREATE_ARGUMENTS, OpenAIArguments
from .convert import (
    create_arguments,
    to_messages,
    to_response_format,
    to_result,
    to_tool_choice,
    to_tools,
    with_instruction,
)
from .refusals import USAGE_OPTION, Body, Feature, refused_feature, refuses_stream, without
from .stream import CompletionStream

if TYPE_CHECKING:
    import openai

# Services of other models: the beginning of their names, address, and variable of the key.
_OTHER_SERVICES = (
    ("gemini-", "https://generativelanguage.googleapis.com/v1beta/openai/", "GEMINI_API_KEY"),
    ("claude-", "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY"),
    ("Llama-", "https://api.llama.com/compat/v1/", "LLAMA_API_KEY"),
)


class BaseOpenAIChatCompletionClient(ServiceClient):
    """What the clients of OpenAI and of Azure share. They differ in how they connect."""

    service: ClassVar[str] = "OpenAI"
    _client: openai.AsyncOpenAI

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._refused = set[Feature]()  # by the server
        self._streams = True  # unless the server refuses to
        super().__init__(arguments, openai_model(arguments["model"]))

    @abstractmethod
    def _open(self) -> openai.AsyncOpenAI:
        """Return the SDK's client."""

    @property
    def _endpoint(self) -> Any:
        return self._client.chat.completions.create

    def _connection(self) -> dict[str, Any]:
        """Return the arguments of the SDK's client, without those that were not given."""
        names = ("organization", "base_url", "timeout", "max_retries", "default_headers")
        return {name: self._arguments[name] for name in names if name in self._arguments}

    def _request_body(self, request: ModelRequest, *, stream: bool) -> dict[str, Any]:
        info = self._model_info
        messages = request.messages
        if request.output_type and not info["structured_output"]:
            messages = with_instruction(messages, request.output_type)
        prefixes: bool = self._arguments.get("add_name_prefixes", False)
        names: bool = self._arguments.get("include_name_in_message", True)
        body = create_arguments(self._arguments, CREATE_ARGUMENTS)
        body |= {
            "model": self._model,
            "messages": to_messages(messages, info, add_name_prefixes=prefixes, include_name=names),
        }
        body |= to_response_format(request, info, schema_in_json_mode=self._is_other_server())
        if request.tools:
            body["tools"] = to_tools(request.tools)
            body["tool_choice"] = to_tool_choice(request.tool_choice)
        else:
            body.pop("parallel_tool_calls", None)  # refused without tools
        body |= request.extra_create_args or {}
        # Without it the service sends no usage. An empty one is for servers that do not know it.
        options = body.pop("stream_options", USAGE_OPTION)
        return {**body, "stream_options": options} if stream and options else body

    async def _post(self, body: Body, *, stream: bool) -> Any:
        """Send `body`; if the server refuses a part of it, from then on without that."""
        while True:
            accepted = without(body, self._refused)
            try:
                return await super()._post(accepted, stream=stream)
            except import_openai().APIStatusError as error:
                feature = refused_feature(error.status_code, f"{error} {error.body}", accepted)
                if feature is None:
                    raise
                self._refused.add(feature)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer; whole if the server does not stream, or its stream is empty.

        Some servers name the error only without a stream.
        """
        empty: ModelError | None = None
        if self._streams:
            try:
                async with contextlib.aclosing(super()._stream(request)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as error:
                empty = error if isinstance(error.__cause__, EmptyStream) else None
                self._streams = not refuses_stream(error.status, str(error))
                if self._streams and not empty:
                    raise
        try:
            result = await self._send(request)
        except ModelError as error:
            if empty is None or error.status is not None:
                raise
            raise empty from empty.__cause__
        if isinstance(result.content, str):
            yield result.content
        yield result

    def _read(self, answer: object, request: ModelRequest) -> CreateResult:
        return to_result(Completion.model_validate(answer))

    def _collector(self, request: ModelRequest) -> CompletionStream:
        return CompletionStream()


class OpenAIChatCompletionClient(BaseOpenAIChatCompletionClient):
    """Ask OpenAI, or any server that speaks its chat completions protocol (`base_url`).

    `OpenAIArguments` lists the parameters. Without `api_key` the environment variable
    `OPENAI_API_KEY` counts; a saved configuration never has the key. Without `base_url`, a model
    named `gemini-…`, `claude-…` or `Llama-…` is asked at its own service, with `GEMINI_API_KEY`,
    `ANTHROPIC_API_KEY` or `LLAMA_API_KEY`. A model that is not known needs `model_info`. Streams
    ask for the usage; `stream_options={}` does not.

    If a server refuses a part of a request that the caller did not ask for, later requests leave it
    out: the usage, the names of speakers, streams, the system role and several messages of one role
    in a row. System messages then begin the first message of a user, and the others are joined.
    """

    service_host: ClassVar[str | None] = "api.openai.com"

    def __init__(self, **arguments: Unpack[OpenAIArguments]) -> None:
        plain, secrets = split_secrets(type(self), cast(Any, arguments), OpenAIArguments)
        self._api_key = secrets["api_key"]
        super().__init__(plain)

    def _open(self) -> openai.AsyncOpenAI:
        sdk = import_openai()
        connection, key, variable = self._connection(), reveal(self._api_key), "OPENAI_API_KEY"
        if "base_url" not in connection and not os.environ.get("OPENAI_BASE_URL"):
            for prefix, address, variable_of_service in _OTHER_SERVICES:
                if self._model.startswith(prefix):
                    connection["base_url"], variable = address, variable_of_service
        # The SDK would send OpenAI's key to any service.
        key = key or os.environ.get(variable)
        if not key:
            raise ValueError(f"No API key. Pass api_key=, or set {variable}.")
        return sdk.AsyncOpenAI(api_key=key, **connection)


def import_openai() -> Any:
    """Return the module `openai`. Raise `ImportError` with the command that installs it."""
    try:
        import openai
    except ImportError as error:
        raise ImportError(
            "This client needs the package openai. Install it: pip install 'cellblock[openai]'"
        ) from error
    return openai
