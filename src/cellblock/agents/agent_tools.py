"""AgentTools: the tools that an agent offers to its model, and their calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ..cancellation import CancellationToken
from ..models.image import Image
from ..models.messages import FunctionCall, FunctionExecutionResult
from ..models.tool_schema import ToolLike, ToolSchema
from ..tools.base import BaseTool
from ..tools.call_spans import record_result, trace_call
from ..tools.function_tool import FunctionTool
from ..tools.tool_result import ImageResultContent, TextResultContent, ToolResult
from ..tools.workbench import StaticWorkbench, Workbench
from .cancellable import cancelled_by
from .handoff import Handoff

AgentTool = BaseTool[Any, Any] | Callable[..., Any]


@dataclass(frozen=True)
class ToolOutcome:
    """A tool call, its result, and the pictures in the result."""

    call: FunctionCall
    result: FunctionExecutionResult
    images: list[Image] = field(default_factory=list[Image])


class AgentTools:
    """The tools of `workbenches`, and one tool for each of `handoffs`."""

    def __init__(self, workbenches: Sequence[Workbench], handoffs: Sequence[Handoff]) -> None:
        self.workbenches = workbenches
        # Name of the tool -> handoff.
        self.handoffs = {handoff.name: handoff for handoff in handoffs}
        self._handoff_tools = {name: each.handoff_tool for name, each in self.handoffs.items()}

    async def list_tools(self) -> list[ToolLike]:
        """Return the tools that there are now."""
        tools: list[ToolLike] = []
        for workbench in self.workbenches:
            tools += await workbench.list_tools()
        return [*tools, *self._handoff_tools.values()]

    async def call(
        self, calls: Sequence[FunctionCall], token: CancellationToken
    ) -> list[ToolOutcome]:
        """Do all `calls` at the same time. A call that fails has a result with `is_error`."""
        with cancelled_by(token):
            return await asyncio.gather(*(self._call(call, token) for call in calls))

    async def _call(self, call: FunctionCall, token: CancellationToken) -> ToolOutcome:
        try:
            arguments: object = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return _failure(call, f"Error: {error}")
        if not isinstance(arguments, dict):
            return _failure(call, f"Error: the arguments are not a JSON object: {call.arguments}")
        try:
            result = await self._find_and_call(call, cast(dict[str, Any], arguments), token)
        except Exception as error:  # whatever a workbench raises is for the model
            return _failure(call, f"Error: {error}")
        if result is None:
            return _failure(call, f"Error: tool '{call.name}' not found in any workbench")
        return ToolOutcome(
            call,
            FunctionExecutionResult(
                content=result.to_text(replace_image="[image]"),
                call_id=call.id,
                is_error=result.is_error,
                name=call.name,
            ),
            [each.content for each in result.result if isinstance(each, ImageResultContent)],
        )

    async def _find_and_call(
        self, call: FunctionCall, arguments: Mapping[str, Any], token: CancellationToken
    ) -> ToolResult | None:
        if tool := self._handoff_tools.get(call.name):
            value = await tool.run_json(arguments, token, call_id=call.id)
            text = TextResultContent(content=tool.return_value_as_string(value))
            return ToolResult(name=call.name, result=[text])
        for workbench in self.workbenches:
            for tool in await workbench.list_tools():
                if tool["name"] == call.name:
                    return await _call_tool(workbench, tool, arguments, token, call.id)
        return None


async def _call_tool(
    workbench: Workbench,
    tool: ToolSchema,
    arguments: Mapping[str, Any],
    token: CancellationToken,
    call_id: str,
) -> ToolResult:
    name = tool["name"]
    if isinstance(workbench, StaticWorkbench):  # its tools begin spans themselves
        return await workbench.call_tool(name, arguments, token, call_id)
    with trace_call(name, tool.get("description"), arguments, call_id) as call:
        result = await workbench.call_tool(name, arguments, token, call_id)
        if call.is_open:
            record_result(call, result.to_text(), result.is_error)
    return result


def _failure(call: FunctionCall, text: str) -> ToolOutcome:
    return ToolOutcome(
        call,
        FunctionExecutionResult(content=text, call_id=call.id, is_error=True, name=call.name),
    )


def collect_tools(
    tools: Sequence[AgentTool] | None,
    workbench: Workbench | Sequence[Workbench] | None,
    handoffs: Sequence[Handoff | str] | None,
) -> AgentTools:
    """Return the tools of an agent. Raise `ValueError` if they cannot be used together."""
    if tools is not None and not isinstance(tools, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(f"tools must be a list of tools, such as [{_name_of(tools)}].")
    own = [_as_tool(tool) for tool in tools or ()]
    names = [tool.name for tool in own]
    if len(set(names)) < len(names):
        raise ValueError(f"Tool names must be unique: {names}")
    offers = [_as_handoff(handoff) for handoff in handoffs or ()]
    handoff_names = [handoff.name for handoff in offers]
    if len(set(handoff_names)) < len(handoff_names):
        raise ValueError(f"Handoff names must be unique: {handoff_names}")
    if {each.name for each in offers} & set(names) or {each.target for each in offers} & set(names):
        raise ValueError("Handoff names must be unique from tool names")
    if workbench is None:
        return AgentTools([StaticWorkbench(own)], offers)
    if own:
        raise ValueError("Tools cannot be used with a workbench.")
    return AgentTools([workbench] if isinstance(workbench, Workbench) else list(workbench), offers)


def _name_of(tool: object) -> str:
    return str(getattr(tool, "__name__", None) or getattr(tool, "name", repr(tool)))


def _as_tool(tool: AgentTool) -> BaseTool[Any, Any]:
    if isinstance(tool, BaseTool):
        return cast(BaseTool[Any, Any], tool)
    if callable(tool):
        return FunctionTool(tool, description=tool.__doc__ or "")
    raise ValueError(f"Unsupported tool type: {type(tool)}")


def _as_handoff(handoff: Handoff | str) -> Handoff:
    if isinstance(handoff, str):
        return Handoff(target=handoff)
    if isinstance(handoff, Handoff):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        return handoff
    raise ValueError(f"Unsupported handoff type: {type(handoff)}")
