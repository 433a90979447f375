"""AnthropicChatCompletionClient: Claude over Anthropic's interface."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack, cast

from pydantic import SecretStr

from ..client import ModelInfo
from ..messages import CreateResult
from ..model_family import anthropic_model
from ..model_request import ModelRequest
from ..service import RequestBody, Service
from ..service_client import ServiceClient, reveal, split_secrets
from .answers import ClaudeMessage
from .convert import (
    json_text,
    lacks_thinking,
    to_json_fields,
    to_messages,
    to_result,
    to_system,
    to_tool_choice,
    to_tools,
)
from .stream import ClaudeStream

if TYPE_CHECKING:
    import anthropic
    import httpx

_CONNECTION_ARGUMENTS = (
    "base_url timeout max_retries default_headers default_query http_client".split()
)
_MAX_TOKENS = 4096  # the service requires a limit; this is AutoGen's


class AnthropicCreateArguments(TypedDict, total=False):
    """What every request says; the service's documentation explains the fields.

    extra_body      more fields of the request, by name
    extra_headers   more HTTP headers of the request
    extra_query     more parameters of the request's address
    """

    extra_body: Mapping[str, Any] | None
    extra_headers: Mapping[str, str] | None
    extra_query: Mapping[str, object] | None
    max_tokens: int | None
    metadata: Mapping[str, str] | None
    service_tier: str | None
    stop_sequences: list[str] | None
    temperature: float | None
    thinking: Mapping[str, Any] | None
    tool_choice: Any
    tools: Any
    top_k: int | None
    top_p: float | None


class AnthropicArguments(AnthropicCreateArguments, total=False):
    """The arguments of `AnthropicChatCompletionClient`.

    api_key              an empty one is for a server at `base_url` that asks for none
    max_tokens           longest answer; None means 4096
    timeout              seconds to wait for the service; None means 600
    max_retries          how often a failed request is sent again; None means 2
    http_client          an `httpx.AsyncClient`, for proxies and certificates; a client with one
                         cannot be saved
    model_info           what the model can do; required for a model that is not known
    model_capabilities   deprecated: `model_info` without the family
    context_window       how many tokens the model can read and write together
    """

    model: Required[str]
    api_key: str | SecretStr | None
    base_url: str | None
    timeout: float | None
    max_retries: int | None
    http_client: httpx.AsyncClient | None
    model_info: ModelInfo | None
    model_capabilities: Mapping[str, bool] | None
    context_window: int | None
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None


class AnthropicChatCompletionClient(ServiceClient):
    """Ask Claude.

    `AnthropicArguments` lists the parameters. Without `api_key` the environment variable
    `ANTHROPIC_API_KEY` counts; a saved configuration never has the key. JSON of a class comes from
    a tool that the model must call; with tools or `thinking`, and for any JSON, the model is
    instructed. With `thinking`, what Claude thought before it called tools goes back with their
    results, signed; if the calls come from elsewhere, such a request is sent without `thinking`.
    """

    def __init__(self, **arguments: Unpack[AnthropicArguments]) -> None:
        plain, secrets = split_secrets(type(self), cast(Any, arguments), AnthropicArguments)
        connect, known = partial(_connect, secrets["api_key"]), anthropic_model(plain["model"])
        super().__init__(_ClaudeService("Anthropic", "api.anthropic.com", plain, known, connect))


class _ClaudeService(Service):
    sdk: anthropic.AsyncAnthropic

    @property
    def _endpoint(self) -> Any:
        return self.sdk.messages.create

    def _request_body(self, request: ModelRequest, *, stream: bool) -> RequestBody:
        names = AnthropicCreateArguments.__optional_keys__
        body: RequestBody = {"max_tokens": _MAX_TOKENS}
        body |= {name: item for name, item in self.arguments.items() if name in names}
        if request.tools:
            body |= {"tools": to_tools(request.tools), "tool_choice": to_tool_choice(request)}
        extra = request.extra_create_args or {}
        is_thinking = _is_enabled(extra.get("thinking", body.get("thinking")))
        messages = to_messages(request.messages, with_thinking=is_thinking)
        if is_refused := is_thinking and lacks_thinking(messages):
            messages = to_messages(request.messages)
        body |= {"model": self.model, "messages": messages}
        body |= to_json_fields(request, can_force_tool=not is_thinking)
        instruction = json_text(request, can_force_tool=not is_thinking)
        if system := "\n\n".join(filter(None, (to_system(request.messages), instruction))):
            body["system"] = system
        body |= extra
        if is_refused:
            del body["thinking"]
        return body

    def _read(self, answer: object, request: ModelRequest) -> CreateResult:
        return to_result(ClaudeMessage.model_validate(answer), request)

    def _collector(self, request: ModelRequest) -> ClaudeStream:
        return ClaudeStream(request)


def _connect(secret: SecretStr | None, arguments: Mapping[str, Any]) -> anthropic.AsyncAnthropic:
    try:
        import anthropic
    except ImportError as error:
        raise ImportError(
            "This client needs the package anthropic. "
            "Install it: pip install 'cellblock[anthropic]'"
        ) from error
    given = {name: arguments[name] for name in _CONNECTION_ARGUMENTS if name in arguments}
    key = reveal(secret, own_server="base_url" in given)
    return anthropic.AsyncAnthropic(api_key=key, **given)


def _is_enabled(thinking: Any) -> bool:
    return bool(thinking) and thinking.get("type") != "disabled"
