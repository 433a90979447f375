"""What a chat prints: messages, tool calls, tool results, notices."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from .agent import ChatMessage
from .io import IOStream
from .message_text import content_str
from .models.templates import instantiate

Color = Literal["red", "green", "yellow", "blue", "magenta", "cyan"]
_CODES: dict[Color, int] = {
    "red": 31,
    "green": 32,
    "yellow": 33,
    "blue": 34,
    "magenta": 35,
    "cyan": 36,
}


def colored(text: str, color: Color) -> str:
    """Return `text` in `color` if standard output is a terminal, else as it is.

    The environment variable `NO_COLOR` turns colours off.
    """
    isatty = getattr(sys.stdout, "isatty", None)  # programs replace standard output
    if os.environ.get("NO_COLOR") or isatty is None or not isatty():
        return text
    return f"\033[{_CODES[color]}m{text}\033[0m"


def print_notice(text: str, color: Color = "red") -> None:
    """Print a line about what the chat does, for example that it runs code."""
    IOStream.get_default().print(colored(text, color), flush=True)


def print_message(
    message: ChatMessage,
    sender: str,
    recipient: str,
    *,
    print_response: Callable[[ChatMessage], None],
    use_templates: bool = False,
) -> None:
    """Print `message` with the names of who sends and who receives it.

    `print_response` prints each of the tool responses in it. `use_templates` fills the message's
    `context` into its text.
    """
    IOStream.get_default().print(colored(sender, "yellow"), "(to", f"{recipient}):\n", flush=True)
    responses = message.get("tool_responses")
    for response in responses or ():
        print_response(response)
    if responses and message.get("role") == "tool":
        return
    if message.get("role") in ("function", "tool"):
        _print_response(message)
    else:
        _print_content(message, use_templates)
        _print_calls(message)
    IOStream.get_default().print("\n", "-" * 80, flush=True, sep="")


def _print_response(message: ChatMessage) -> None:
    kind = message["role"]
    identifier = message.get("name" if kind == "function" else "tool_call_id", "No id found")
    title = f"***** Response from calling {kind} ({identifier}) *****"
    stream = IOStream.get_default()
    stream.print(colored(title, "green"), flush=True)
    stream.print(message["content"], flush=True)
    stream.print(colored("*" * len(title), "green"), flush=True)


def _print_content(message: ChatMessage, use_templates: bool) -> None:
    content = message.get("content")
    if content is None:
        return
    if "context" in message and not isinstance(content, list):
        content = instantiate(content, message["context"], use_templates)
    IOStream.get_default().print(content_str(cast(Any, content)), flush=True)


def _print_calls(message: ChatMessage) -> None:
    if message.get("function_call"):
        call = dict(message["function_call"])
        _print_call(f"function call: {call.get('name', '(No function name found)')}", call)
    for tool_call in message.get("tool_calls") or ():
        call = dict(tool_call.get("function", {}))
        identifier = tool_call.get("id", "No tool call id found")
        name = call.get("name", "(No function name found)")
        _print_call(f"tool call ({identifier}): {name}", call)


def _print_call(what: str, call: Mapping[str, Any]) -> None:
    title = f"***** Suggested {what} *****"
    stream = IOStream.get_default()
    stream.print(colored(title, "green"), flush=True)
    arguments = call.get("arguments", "(No arguments found)")
    stream.print("Arguments: \n", arguments, flush=True, sep="")
    stream.print(colored("*" * len(title), "green"), flush=True)
