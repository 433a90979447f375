"""The arguments of the clients: which there are, and which part each one goes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from pydantic import SecretStr

from ..client import ModelInfo

if TYPE_CHECKING:
    import httpx


class CreateArguments(TypedDict, total=False):
    """What every request says; the service's documentation explains the fields.

    extra_body      more fields of the request, by name
    extra_headers   more HTTP headers of the request
    extra_query     more parameters of the request's address
    """

    audio: Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    extra_headers: Mapping[str, str] | None
    extra_query: Mapping[str, object] | None
    frequency_penalty: float | None
    logit_bias: Mapping[str, int] | None
    logprobs: bool | None
    max_completion_tokens: int | None
    max_tokens: int | None
    metadata: Mapping[str, str] | None
    modalities: list[str] | None
    n: int | None
    parallel_tool_calls: bool | None
    prediction: Mapping[str, Any] | None
    presence_penalty: float | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    response_format: Mapping[str, Any] | None
    safety_identifier: str | None
    seed: int | None
    service_tier: str | None
    stop: str | list[str] | None
    store: bool | None
    stream_options: Mapping[str, Any] | None
    temperature: float | None
    top_logprobs: int | None
    top_p: float | None
    user: str | None
    verbosity: Literal["low", "medium", "high"] | None
    web_search_options: Mapping[str, Any] | None


class BaseOpenAIArguments(CreateArguments, total=False):
    """What the clients of OpenAI and of Azure share.

    timeout                   seconds to wait for the service; None means 600
    max_retries               how often a failed request is sent again; None means 2
    http_client               an `httpx.AsyncClient`, for proxies and certificates; a client with
                              one cannot be saved
    model_info                what the model can do; required for a model that is not known
    model_capabilities        deprecated: `model_info` without the family
    context_window            how many tokens the model can read and write together
    add_name_prefixes         begin each user message with "NAME said:"
    include_name_in_message   send the names of speakers in the field `name`
    websocket_base_url        is passed to the SDK; requests use no web sockets
    """

    model: Required[str]
    api_key: str | SecretStr | None
    timeout: float | None
    max_retries: int | None
    http_client: httpx.AsyncClient | None
    model_info: ModelInfo | None
    model_capabilities: Mapping[str, bool] | None
    context_window: int | None
    add_name_prefixes: bool | None
    include_name_in_message: bool | None
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None
    organization: str | None
    project: str | None
    websocket_base_url: str | None


class OpenAIArguments(BaseOpenAIArguments, total=False):
    """The arguments of `OpenAIChatCompletionClient`.

    api_key    an empty one is for a server at `base_url` that asks for none
    base_url   address of a server that speaks OpenAI's protocol; None means OpenAI's own
    """

    base_url: str | None


class AzureOpenAIArguments(BaseOpenAIArguments, total=False):
    """The arguments of `AzureOpenAIChatCompletionClient`.

    azure_endpoint            such as "https://NAME.openai.azure.com"
    azure_deployment          name of the deployment; None means that of the model
    azure_ad_token            a token of Entra ID, instead of an API key
    azure_ad_token_provider   returns such a token before each request
    """

    azure_endpoint: Required[str]
    azure_deployment: str | None
    api_version: Required[str]
    azure_ad_token: str | SecretStr | None
    azure_ad_token_provider: Callable[[], str | Awaitable[str]] | None


CREATE_ARGUMENTS = CreateArguments.__optional_keys__
