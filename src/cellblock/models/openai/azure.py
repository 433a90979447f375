"""AzureOpenAIChatCompletionClient: OpenAI's models in Azure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Unpack, cast

from ...errors import ComponentError
from ..service_client import ServiceClient, reveal, split_secrets
from .arguments import AzureOpenAIArguments
from .service import OpenAIService, connection_arguments, import_openai

if TYPE_CHECKING:
    import openai


class AzureOpenAIChatCompletionClient(ServiceClient):
    """Ask a model that is deployed in Azure.

    `AzureOpenAIArguments` lists the parameters. Without `api_key`, `azure_ad_token` and
    `azure_ad_token_provider` the environment variables `AZURE_OPENAI_API_KEY` and
    `AZURE_OPENAI_AD_TOKEN` count. A client with a token provider cannot be saved.
    """

    def __init__(self, **arguments: Unpack[AzureOpenAIArguments]) -> None:
        values: dict[str, Any] = dict(cast(Any, arguments))
        provider: Callable[[], str | Awaitable[str]] | None
        provider = values.pop("azure_ad_token_provider", None)
        if isinstance(provider, Mapping):  # a component of AutoGen's
            raise ValueError("azure_ad_token_provider must be a function. Pass it yourself.")
        self._provider = provider
        secret_names = ("api_key", "azure_ad_token")
        plain, self._secrets = split_secrets(type(self), values, AzureOpenAIArguments, secret_names)
        super().__init__(OpenAIService("Azure OpenAI", None, plain, self._connect))

    def _connect(self, arguments: Mapping[str, Any]) -> openai.AsyncOpenAI:
        sdk = import_openai()
        names = ("azure_endpoint", "azure_deployment", "api_version")
        try:
            return sdk.AsyncAzureOpenAI(
                api_key=reveal(self._secrets["api_key"]),
                azure_ad_token=reveal(self._secrets["azure_ad_token"]),
                azure_ad_token_provider=self._provider and self._token,
                **{name: arguments[name] for name in names if name in arguments},
                **connection_arguments(arguments),
            )
        except sdk.OpenAIError as error:
            raise ValueError(f"The Azure client cannot be created: {error}") from error

    async def _token(self) -> str:
        assert self._provider is not None
        token = self._provider()
        return await token if isawaitable(token) else token

    def _to_config(self) -> dict[str, object]:
        if self._provider is not None:
            raise ComponentError(
                "A client with azure_ad_token_provider cannot be saved: it is a function. "
                "Use azure_ad_token or an API key."
            )
        return super()._to_config()
