"""The arguments of the clients: which there are, and which part each one goes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Required, TypedDict

from pydantic import SecretStr

from ..client import ModelInfo


class CreateArguments(TypedDict, total=False):
    """What every request says; the service's documentation explains the fields."""

    frequency_penalty: float | None
    logit_bias: Mapping[str, int] | None
    logprobs: bool | None
    max_completion_tokens: int | None
    max_tokens: int | None
    n: int | None
    parallel_tool_calls: bool | None
    presence_penalty: float | None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    response_format: Mapping[str, Any] | None
    seed: int | None
    stop: str | list[str] | None
    stream_options: Mapping[str, Any] | None
    temperature: float | None
    top_logprobs: int | None
    top_p: float | None
    user: str | None


class BaseOpenAIArguments(CreateArguments, total=False):
    """What the clients of OpenAI and of Azure share.

    timeout                   seconds to wait for the service; None means 600
    max_retries               how often a failed request is sent again; None means 2
    model_info                what the model can do; required for a model that is not known
    context_window            how many tokens the model can read and write together
    add_name_prefixes         begin each user message with "NAME said:"
    include_name_in_message   send the names of speakers in the field `name`
    """

    model: Required[str]
    api_key: str | SecretStr | None
    timeout: float | None
    max_retries: int | None
    model_info: ModelInfo | None
    context_window: int | None
    add_name_prefixes: bool | None
    include_name_in_message: bool | None
    default_headers: Mapping[str, str] | None


class OpenAIArguments(BaseOpenAIArguments, total=False):
    """The arguments of `OpenAIChatCompletionClient`.

    base_url   address of a server that speaks OpenAI's protocol; None means OpenAI's own
    """

    organization: str | None
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
