"""OpenAIService: OpenAI's chat completions protocol, as many servers speak it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ..messages import CreateResult
from ..model_family import openai_model
from ..model_request import ModelRequest
from ..service import RequestBody, Service
from ..service_errors import EmptyStream
from .answers import Completion
from .arguments import CREATE_ARGUMENTS
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

_CONNECTION_ARGUMENTS = (
    "organization project base_url websocket_base_url timeout max_retries default_headers "
    "default_query http_client"
).split()


class OpenAIService(Service):
    """The service of OpenAI or of Azure. `connect` returns the SDK's client."""

    sdk: openai.AsyncOpenAI

    def __init__(
        self,
        name: str,
        host: str | None,
        arguments: Mapping[str, Any],
        connect: Callable[[Mapping[str, Any]], openai.AsyncOpenAI],
    ) -> None:
        self._refused = set[Feature]()  # by the server
        self._streams = True  # unless the server refuses to
        super().__init__(name, host, arguments, openai_model(arguments["model"]), connect)

    @property
    def _endpoint(self) -> Any:
        return self.sdk.chat.completions.create

    def _request_body(self, request: ModelRequest, *, stream: bool) -> RequestBody:
        info = self.model_info
        messages = request.messages
        if request.output_type and not info.get("structured_output"):
            messages = with_instruction(messages, request.output_type)
        prefixes: bool = self.arguments.get("add_name_prefixes", False)
        names: bool = self.arguments.get("include_name_in_message", True)
        body = create_arguments(self.arguments, CREATE_ARGUMENTS)
        body |= {
            "model": self.model,
            "messages": to_messages(messages, info, add_name_prefixes=prefixes, include_name=names),
        }
        body |= to_response_format(request, info, schema_in_json_mode=self.is_other_server())
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

    async def stream(self, request: ModelRequest) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer; whole if the server does not stream, or its stream is empty.

        Some servers name the error only without a stream.
        """
        empty: ModelError | None = None
        if self._streams:
            try:
                async with contextlib.aclosing(super().stream(request)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as error:
                empty = error if isinstance(error.__cause__, EmptyStream) else None
                self._streams = not refuses_stream(error.status, str(error))
                if self._streams and not empty:
                    raise
        try:
            result = await self.send(request)
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


def connection_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the SDK's client, without those that were not given."""
    return {name: arguments[name] for name in _CONNECTION_ARGUMENTS if name in arguments}


def import_openai() -> Any:
    """Return the module `openai`. Raise `ImportError` with the command that installs it."""
    try:
        import openai
    except ImportError as error:
        raise ImportError(
            "This client needs the package openai. Install it: pip install 'cellblock[openai]'"
        ) from error
    return openai
