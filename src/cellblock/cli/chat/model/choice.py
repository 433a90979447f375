"""Choose the model client that the options and the environment ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ....errors import ModelError
from ....models.client import ChatCompletionClient, ModelInfo
from ....models.model_family import openai_model
from ..settings import ChatSettings
from .prices import Price, known_price

_NO_MODEL = (
    "no model is configured; --demo shows a recorded conversation without one.\n"
    "Set OPENAI_API_KEY or ANTHROPIC_API_KEY, and pass --model NAME (or set CELLBLOCK_MODEL).\n"
    "Your own server needs no key: --base-url http://localhost:11434/v1 --model NAME"
)
_NO_NAME = "--base-url needs the name of the model: pass --model NAME (or set CELLBLOCK_MODEL)."
_NO_API_KEY = (
    "{variable} is not set, which {model} needs.\n"
    "Set it, or pass --base-url URL for your own server."
)
# Of a model that is not known: only text is safe to request.
_PLAIN_MODEL = ModelInfo(
    vision=False,
    function_calling=False,
    json_output=False,
    family="unknown",
    structured_output=False,
)
_NO_KEY = "none"  # for servers that need no key; the SDK does


def make_client(settings: ChatSettings, environment: Mapping[str, str]) -> ChatCompletionClient:
    """Return the client. Raise `ModelError` with three lines of advice if no model is configured.

    Models whose names begin with "claude" are Anthropic's, unless `base_url` is given.
    """
    model, base_url = settings.model, settings.base_url
    is_claude = bool(model) and str(model).startswith("claude") and not base_url
    variable = "ANTHROPIC_API_KEY" if is_claude else "OPENAI_API_KEY"
    key = environment.get(variable, "")
    if not model:
        raise ModelError(_NO_NAME if base_url else _NO_MODEL)
    if not (key or base_url):
        raise ModelError(_NO_API_KEY.format(model=model, variable=variable))
    try:
        return _anthropic(settings) if is_claude else _openai(settings, key)
    except ImportError as error:
        raise ModelError(str(error)) from error


def _anthropic(settings: ChatSettings) -> ChatCompletionClient:
    from ....models.anthropic import AnthropicChatCompletionClient
    from ....models.model_family import anthropic_model

    model = str(settings.model)
    return AnthropicChatCompletionClient(
        model=model,
        context_window=settings.context_window,
        max_retries=0,  # `ChatModel` says why it asks again
        model_info=_PLAIN_MODEL if anthropic_model(model) is None else None,
    )


def _openai(settings: ChatSettings, key: str) -> ChatCompletionClient:
    from ....models.openai import OpenAIChatCompletionClient

    model = str(settings.model)
    return OpenAIChatCompletionClient(
        model=model,
        base_url=settings.base_url or None,
        api_key=key or _NO_KEY,
        context_window=settings.context_window,
        max_retries=0,
        model_info=_PLAIN_MODEL if openai_model(model) is None else None,
    )


def find_price(settings: ChatSettings) -> Price | None:
    """Return the price of the model; None if it is not known, or not that of its usual service."""
    if settings.price is not None or settings.base_url or not settings.model:
        return settings.price
    return known_price(os.path.basename(settings.model))
