"""OpenAIChatCompletionClient: OpenAI, and every server that speaks its protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from pydantic import SecretStr

from ..service_client import ServiceClient, reveal, split_secrets
from .arguments import OpenAIArguments
from .service import OpenAIService, connection_arguments, import_openai

if TYPE_CHECKING:
    import openai

# Services of other models: the beginning of their names, address, and variable of the key.
_OTHER_SERVICES = (
    ("gemini-", "https://generativelanguage.googleapis.com/v1beta/openai/", "GEMINI_API_KEY"),
    ("claude-", "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY"),
    ("Llama-", "https://api.llama.com/compat/v1/", "LLAMA_API_KEY"),
)


class OpenAIChatCompletionClient(ServiceClient):
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

    def __init__(self, **arguments: Unpack[OpenAIArguments]) -> None:
        plain, secrets = split_secrets(type(self), cast(Any, arguments), OpenAIArguments)
        connect = partial(_connect, secrets["api_key"])
        super().__init__(OpenAIService("OpenAI", "api.openai.com", plain, connect))


def _connect(secret: SecretStr | None, arguments: Mapping[str, Any]) -> openai.AsyncOpenAI:
    sdk = import_openai()
    connection, variable = connection_arguments(arguments), "OPENAI_API_KEY"
    own_server = "base_url" in connection or bool(os.environ.get("OPENAI_BASE_URL"))
    if not own_server:
        for prefix, address, variable_of_service in _OTHER_SERVICES:
            if arguments["model"].startswith(prefix):
                connection["base_url"], variable = address, variable_of_service
    # The SDK would send OpenAI's key to any service.
    key = reveal(secret, own_server=own_server) or os.environ.get(variable)
    if not key:
        raise ValueError(f"No API key. Pass api_key=, or set {variable}.")
    return sdk.AsyncOpenAI(api_key=key, **connection)
