"""Spans of tool calls: the name of the tool; arguments and result on request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..tracing import Span, genai_span


def trace_call(
    name: str, description: str | None, arguments: Mapping[str, Any], call_id: str | None
) -> Span:
    """Begin the span of a call of the tool `name`."""
    attributes = {
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": description or None,
        "gen_ai.tool.call.id": call_id,
    }
    call = genai_span("execute_tool", name, attributes)
    if call.records_content:
        call.set("gen_ai.tool.call.arguments", json.dumps(arguments, default=repr))
    return call


def record_result(call: Span, text: str, is_failure: bool) -> None:
    """Record what a tool returned, as the model sees it."""
    if call.records_content:
        call.set("gen_ai.tool.call.result", text)
    if is_failure:
        call.fail("tool_error")
