"""Templates in messages: filled with the values of `context`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from ..agent import ChatMessage
from .config_keys import Parameters

Context = dict[str, Any]
"""The values that templates are filled with."""
Template = str | Callable[[Context], str] | None


def instantiate(
    template: Template,
    context: Context | None = None,
    allow_format_str_template: bool | None = False,
) -> str | None:
    """Return `template` with the values of `context`.

    A function is called with `context`. A text is formatted only if `allow_format_str_template`.
    """
    if not context or template is None:
        return template if isinstance(template, str) else None
    if not isinstance(template, str):
        return template(context)
    return template.format(**context) if allow_format_str_template else template


def fill_messages(params: Mapping[str, Any]) -> Parameters:
    """Return the parameters `params` of a request with the templates in its messages filled."""
    context: Context | None = params.get("context")
    if not context or not params.get("messages"):
        return dict(params)
    formats = params.get("allow_format_str_template", False)
    messages = [_fill(message, context, formats) for message in params["messages"]]
    return {**params, "messages": messages}


def _fill(message: ChatMessage, context: Context, formats: bool) -> ChatMessage:
    content: Any = message.get("content")
    if isinstance(content, str) or callable(content):
        return {**message, "content": instantiate(cast(Template, content), context, formats)}
    return message
