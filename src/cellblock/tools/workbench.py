"""Workbench: a set of tools that a model can call."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, TypeAdapter

from ..aio.running_loop import running_loop
from ..cancellation import CancellationToken, on_cancel
from ..components import Component, SavedComponent
from ..models.tool_schema import ToolSchema
from .base import BaseTool
from .tool_result import TextResultContent, ToolResult


class ToolOverride(BaseModel):
    """Another name or description, under which a tool is shown to the model."""

    name: str | None = None
    description: str | None = None


_OVERRIDES = TypeAdapter(dict[str, ToolOverride])


class Workbench(Component, ABC):
    """A set of tools, which may share a state and may change after each call.

    `async with` starts and stops it.
    """

    component_type: ClassVar[str] = "workbench"

    @abstractmethod
    async def list_tools(self) -> list[ToolSchema]:
        """Return the descriptions of the tools that there are now."""

    @abstractmethod
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call the tool `name` and return its result.

        A tool that fails, or does not exist, is a result with `is_error`. Raise
        `asyncio.CancelledError` if the token is cancelled.
        """

    @abstractmethod
    async def start(self) -> None:
        """Start what the tools need."""

    @abstractmethod
    async def stop(self) -> None:
        """Release what the tools need."""

    @abstractmethod
    async def reset(self) -> None:
        """Return to the state after `start`."""

    @abstractmethod
    async def save_state(self) -> Mapping[str, Any]:
        """Return the state as JSON values."""

    @abstractmethod
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


class StaticWorkbench(Workbench):
    """A workbench whose tools stay the same.

    tool_overrides   for the name of a tool, the name and description that the model sees

    Raise `ValueError` if two tools have one name, or an override names no tool.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool[Any, Any]],
        tool_overrides: Mapping[str, ToolOverride] | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._overrides = dict(tool_overrides or {})
        if len(self._tools) < len(tools):
            raise ValueError(f"Tool names must be unique: {[tool.name for tool in tools]}.")
        # The name that the model sees -> the tool.
        self._by_shown_name = self._shown_names()

    def _shown_names(self) -> dict[str, BaseTool[Any, Any]]:
        shown = dict(self._tools)
        for name, override in self._overrides.items():
            if name not in self._tools:
                raise ValueError(
                    f"There is an override for {name!r}, but the tools are {list(self._tools)}."
                )
            if override.name in (None, name):
                continue
            if override.name in self._tools:
                raise ValueError(
                    f"Tool override name '{override.name}' conflicts with existing tool name. "
                    "Override names must not conflict with any tool names."
                )
            if override.name in shown:
                raise ValueError(
                    f"Tool override name '{override.name}' is used by multiple tools: "
                    f"'{shown[override.name].name}' and '{name}'. Override names must be unique."
                )
            shown[override.name] = self._tools[name]
        return shown

    async def list_tools(self) -> list[ToolSchema]:
        """Return the descriptions of the tools."""
        return [self._shown_schema(tool) for tool in self._tools.values()]

    def _shown_schema(self, tool: BaseTool[Any, Any]) -> ToolSchema:
        schema = tool.schema
        override = self._overrides.get(tool.name, ToolOverride())
        if override.name is not None:
            schema["name"] = override.name
        if override.description is not None:
            schema["description"] = override.description
        return schema

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call a tool. See `Workbench.call_tool`."""
        tool = self._by_shown_name.get(name)
        if tool is None:
            return _error_result(name, f"Tool {name} not found.")
        token = cancellation_token or CancellationToken()
        if token.is_cancelled():
            raise asyncio.CancelledError
        try:
            value = await _call(tool, arguments or {}, token, call_id)
            contents = tool.return_value_as_contents(value)
        except Exception as error:  # whatever a tool raises is for the model
            return _error_result(name, _error_text(error))
        return ToolResult(name=name, result=contents, is_error=tool.is_failure(value))

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def reset(self) -> None:
        """Do nothing."""

    async def save_state(self) -> Mapping[str, Any]:
        """Return the states of the tools."""
        states = {name: await tool.save_state_json() for name, tool in self._tools.items()}
        return {"type": "StaticWorkbenchState", "tools": states}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the states of the tools that are still there."""
        states: Mapping[str, Any] = state["tools"]
        for name, tool in self._tools.items():
            if name in states:
                await tool.load_state_json(states[name])

    def _to_config(self) -> dict[str, object]:
        return {
            "tools": [tool.dump_component().to_dict() for tool in self._tools.values()],
            "tool_overrides": _OVERRIDES.dump_python(self._overrides, mode="json"),
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        saved = cast(Sequence[SavedComponent], config.get("tools") or [])
        tools: list[BaseTool[Any, Any]] = [BaseTool.load_component(tool) for tool in saved]
        return cls(tools, _OVERRIDES.validate_python(config.get("tool_overrides") or {}))


async def _call(
    tool: BaseTool[Any, Any],
    arguments: Mapping[str, Any],
    token: CancellationToken,
    call_id: str | None,
) -> Any:
    loop = running_loop()
    task = asyncio.ensure_future(tool.run_json(arguments, token, call_id))
    with on_cancel(token, loop, task.cancel):
        value = await task
    if token.is_cancelled():
        raise asyncio.CancelledError  # an executor's result says so; its caller must stop too
    return value


def _error_result(name: str, text: str) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


def _error_text(error: BaseException) -> str:
    """Return the message of `error`; with its class where the message says too little."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(map(_error_text, cast(BaseExceptionGroup[Any], error).exceptions))
    if isinstance(error, KeyError) or not str(error):
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    return str(error).strip()
