"""The keys of a configuration: the model's address, the wrapper's options, the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ModelConfig = dict[str, Any]
"""An entry of `config_list`, or an `llm_config`; see `OpenAIWrapper`."""
Parameters = dict[str, Any]
"""The parameters of a request to a chat model, as OpenAI names them."""

# Keys that decide how to connect; they are not parameters of a request.
ADDRESS_KEYS = frozenset(
    {
        "api_key",
        "base_url",
        "organization",
        "timeout",
        "max_retries",
        "default_headers",
        "azure_endpoint",
        "azure_deployment",
        "azure_ad_token",
        "azure_ad_token_provider",
        "http_client",
        "default_query",
        "project",
        "websocket_base_url",
    }
)
# Keys that an OpenAIWrapper reads itself.
CONTROL_KEYS = frozenset(
    {
        "agent",
        "allow_format_str_template",
        "api_rate_limit",
        "api_type",
        "api_version",
        "cache",
        "cache_seed",
        "context",
        "context_window",
        "filter_func",
        "model_client",
        "model_info",
        "price",
        "tags",
    }
)


def request_config(entry: ModelConfig) -> ModelConfig:
    """Return the entry `entry` without addresses and keys; a class of the user's reads them."""
    if entry.get("model_client_cls") is not None:
        return entry
    return {name: value for name, value in entry.items() if name not in ADDRESS_KEYS}


def refuse_addresses(config: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a parameter of a request that says where to send it."""
    refused = sorted((ADDRESS_KEYS - {"timeout"} | {"config_list"}) & set(config))
    if refused:
        raise ValueError(f"A request cannot have {', '.join(refused)}. Pass them to OpenAIWrapper.")


def request_parameters(config: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a request, without those of the wrapper."""
    return {name: value for name, value in config.items() if name not in CONTROL_KEYS}
