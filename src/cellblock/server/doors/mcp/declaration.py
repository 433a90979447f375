"""Declare tools that refuse unknown arguments, and describe wrong arguments to models."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import ToolAnnotations
from pydantic import ConfigDict, ValidationError, create_model


def declare_tool(
    function: Callable[..., Awaitable[Any]],
    *,
    title: str,
    annotations: ToolAnnotations,
    name: str | None = None,
    description: str | None = None,
) -> Tool:
    """Return a tool. The default of `description` is the docstring of `function`.

    The SDK ignores arguments that it does not know, so a misspelt time limit would have no effect.
    """
    text = description or inspect.cleandoc(function.__doc__ or "")
    tool = Tool.from_function(
        function, name=name, title=title, description=text, annotations=annotations
    )
    loose = tool.fn_metadata.arg_model
    strict = create_model(loose.__name__, __base__=loose)
    strict.model_config = ConfigDict({**loose.model_config, "extra": "forbid"})
    strict.model_rebuild(force=True)
    tool.fn_metadata.arg_model = strict
    tool.parameters = strict.model_json_schema(by_alias=True)
    return tool


def argument_error(tool: Tool | None, error: ToolError) -> ToolError | None:
    """Return an error that names the wrong arguments; None if `error` has another cause."""
    cause = error.__cause__
    is_argument_error = isinstance(cause, ValidationError)
    if tool is None or not is_argument_error or isinstance(error, UnexpectedToolError):
        return None
    known = list(tool.parameters["properties"])
    lines = [_describe(tool.name, known, each["type"], each) for each in cause.errors()]
    return ToolError(" ".join(lines))


def _describe(tool: str, known: list[str], kind: str, error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if kind == "extra_forbidden":
        return f"{tool} has no argument {name[:100]!r}. Its arguments are: {', '.join(known)}."
    if kind == "missing":
        return f"{tool} needs the argument {name!r}."
    message = error["msg"]
    return f"The argument {name!r} of {tool} is wrong: {message[:1].lower()}{message[1:]}."
