"""Entries of `config_list` to clients of `cellblock.models`."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any, cast

from ...models.anthropic import AnthropicChatCompletionClient
from ...models.client import ChatCompletionClient, ModelInfo
from ...models.model_family import anthropic_model, openai_model
from ...models.openai import AzureOpenAIChatCompletionClient, OpenAIChatCompletionClient
from .config_keys import ModelConfig

_SHARED_KEYS = (
    "timeout max_retries default_headers default_query http_client context_window".split()
)
_OPENAI_KEYS = ("organization", "project", "websocket_base_url")
_OPENAI = ("openai", "open_ai")  # old scripts have the latter
# Services that speak OpenAI's protocol: address, and environment variable of the key.
_OPENAI_ALIKE = {
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "cohere": ("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai/", "GOOGLE_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": ("http://localhost:11434/v1", "OLLAMA_API_KEY"),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
}


def client_of(config: Mapping[str, Any]) -> ChatCompletionClient:
    """Return the client that the entry `config` describes.

    It is `config["model_client"]`, or one of `api_type`: "openai" (the default), "azure",
    "anthropic", or a service that speaks OpenAI's protocol. Raise `ValueError` if credentials are
    missing, or for a service or setting that is not offered.
    """
    if (given := config.get("model_client")) is not None:
        return _given_client(given)
    service = str(config.get("api_type") or "openai").lower()
    if service.startswith("azure"):
        return _azure(config)
    match service:
        case "anthropic":
            return _anthropic(config)
        case "bedrock":
            raise ValueError(
                "api_type 'bedrock' is not offered. Pass your own client in the entry of "
                "config_list: as 'model_client', or as a class with 'model_client_cls'."
            )
        case _:
            _refuse_unknown_service(config, service)
            return _openai(config, service)


def check_config_list(config_list: object) -> None:
    """Raise `ValueError` if `config_list` is neither None nor a list of dicts."""
    if config_list is None:
        return
    if isinstance(config_list, list | tuple):
        entries = cast("list[object]", config_list)
        if all(isinstance(each, Mapping) for each in entries):
            return
    raise ValueError(
        "config_list must be a list of dicts, such as [{'model': …, 'api_key': …}]. Write each "
        "model as such a dict, in a list."
    )


def _refuse_unknown_service(config: Mapping[str, Any], service: str) -> None:
    """Raise `ValueError` for a service without a known address: its key would go to OpenAI."""
    if service in _OPENAI or service in _OPENAI_ALIKE or config.get("base_url"):
        return
    known = ", ".join(sorted({"openai", "azure", "anthropic", *_OPENAI_ALIKE}))
    raise ValueError(
        f"api_type {service!r} in an entry of config_list is not known. Use one of {known}; or "
        "pass 'base_url', the address of a service that speaks OpenAI's protocol."
    )


def copied_config(llm_config: ModelConfig) -> ModelConfig:
    """Return a deep copy of `llm_config` that has the same model clients.

    Raise `TypeError` if a value cannot be copied, and `ValueError` if `config_list` is not a list
    of dicts.
    """
    check_config_list(llm_config.get("config_list"))
    entries = cast(list[ModelConfig], llm_config.get("config_list") or [])
    clients: list[Any] = [entry.get("model_client") for entry in (llm_config, *entries)]
    try:
        return copy.deepcopy(llm_config, {id(client): client for client in clients})
    except TypeError as error:
        raise TypeError(
            f"llm_config has a value that cannot be copied: {error}. "
            "Please implement __deepcopy__ method for each value class in llm_config."
        ) from error


def _given_client(given: object) -> ChatCompletionClient:
    if not isinstance(given, ChatCompletionClient):
        raise ValueError(
            f"'model_client' in an entry of config_list is {given!r:.100}. Pass a client of "
            "cellblock.models; name your own class in 'model_client_cls'."
        )
    return given


def _openai(config: Mapping[str, Any], service: str) -> ChatCompletionClient:
    address, variable = _OPENAI_ALIKE.get(service, (None, ""))
    key = config.get("api_key") or os.environ.get(variable) or config.get("api_key")
    if service == "ollama":
        key = key or "ollama"  # it needs none, and the protocol demands one
    elif address and not key and not _needs_no_key(config):
        raise ValueError(f"No API key. Pass 'api_key', or set {variable}.")
    arguments = _arguments(config, "base_url", *_OPENAI_KEYS)
    arguments.setdefault("base_url", address)
    return OpenAIChatCompletionClient(**arguments, api_key=key)


def _needs_no_key(config: Mapping[str, Any]) -> bool:
    """Return True if `api_key` is empty for a server of the user's."""
    return config.get("api_key") == "" and bool(config.get("base_url"))


def _azure(config: Mapping[str, Any]) -> ChatCompletionClient:
    arguments = _arguments(
        config,
        *("api_key", "azure_endpoint", "azure_ad_token", "azure_ad_token_provider"),
        *_OPENAI_KEYS,
    )
    endpoint = arguments.pop("azure_endpoint", None) or config.get("base_url")
    version = config.get("api_version") or os.environ.get("OPENAI_API_VERSION")
    if not endpoint or not version:
        missing = "'base_url'" if not endpoint else "'api_version'"
        raise ValueError(
            f"An entry of config_list with api_type 'azure' has no {missing}. Add it to the entry."
        )
    deployment = config.get("azure_deployment") or config.get("model")
    # The name of a deployment has no dots.
    name = str(deployment).replace(".", "") if deployment else None
    return AzureOpenAIChatCompletionClient(
        **arguments, azure_endpoint=endpoint, api_version=version, azure_deployment=name
    )


def _anthropic(config: Mapping[str, Any]) -> ChatCompletionClient:
    key = config.get("api_key") or os.environ.get("ANTHROPIC_API_KEY")
    if not key and not _needs_no_key(config):
        raise ValueError("No API key. Pass 'api_key', or set ANTHROPIC_API_KEY.")
    model = str(config.get("model") or "")
    info = None if anthropic_model(model) else _UNKNOWN_MODEL
    arguments = _arguments(config, "api_key", "base_url")
    arguments["model_info"] = config.get("model_info") or info
    return AnthropicChatCompletionClient(**arguments)


def _arguments(config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the arguments `names` of a client, and those that all clients have."""
    model = str(config.get("model") or "")
    given = {name: config[name] for name in (*_SHARED_KEYS, *names) if name in config}
    info = None if openai_model(model) else _UNKNOWN_MODEL
    return {**given, "model": model, "model_info": config.get("model_info") or info}


# The service says what a model that is not known here cannot do.
_UNKNOWN_MODEL = ModelInfo(
    vision=True,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=True,
)
