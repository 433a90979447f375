"""Answers in JSON: the schema that a service is given, and the check of what comes back."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from ..errors import ModelOutputError
from .client import JsonOutput
from .messages import CreateResult

_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)
_MAX_EXCERPT = 200


def strict_schema(output_type: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of `output_type` in the form that OpenAI's strict mode requires.

    Objects have no other properties, and all of theirs are required. Nothing stands next to a
    reference.
    """
    return _strict_node(output_type.model_json_schema())


def _strict_node(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node and len(node) > 1:  # a description, say
        rest = {key: value for key, value in node.items() if key != "$ref"}
        node = {"anyOf": [{"$ref": node["$ref"]}], **rest}
    strict: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword in ("properties", "$defs"):  # names, not keywords
            strict[keyword] = {name: _strict(item) for name, item in value.items()}
        elif keyword in ("enum", "const", "examples"):
            strict[keyword] = value
        elif keyword != "default":  # refused
            strict[keyword] = _strict(value)
    if strict.get("type") == "object" and "properties" in strict:
        strict |= {"additionalProperties": False, "required": list(strict["properties"])}
    return strict


def _strict(part: Any) -> Any:
    if isinstance(part, list):
        return [_strict(item) for item in cast(list[Any], part)]
    return _strict_node(cast(dict[str, Any], part)) if isinstance(part, dict) else part


def json_instruction(json_output: JsonOutput) -> str:
    """Return the instruction for a model whose service cannot enforce JSON."""
    if not isinstance(json_output, type):
        return "Answer with one JSON value and nothing else."
    schema = json.dumps(json_output.model_json_schema())
    return f"Answer with one JSON object of this schema and nothing else:\n{schema}"


def checked_output(result: CreateResult, json_output: JsonOutput) -> CreateResult:
    """Return `result` if it is JSON as requested; without the Markdown fence around it.

    Tool calls are returned as they are. Raise `ModelOutputError` for anything else.
    """
    if not json_output or not isinstance(result.content, str):
        return result
    fence = _FENCE.fullmatch(result.content)
    text = fence[1] if fence else result.content
    try:
        if isinstance(json_output, type):
            json_output.model_validate_json(text)
        else:
            json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelOutputError(_describe(text, json_output, result.finish_reason, error)) from error
    return result.model_copy(update={"content": text})


def _describe(text: str, json_output: JsonOutput, finish_reason: str, error: Exception) -> str:
    wanted = f"JSON of {json_output.__name__}" if isinstance(json_output, type) else "JSON"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        reason = f"{place}: {first['msg']}" if place else first["msg"]
    else:
        reason = str(error)
    causes = {
        "length": " It was cut off: raise max_tokens.",
        "content_filter": " The service filtered it.",
    }
    excerpt = text if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT]}…"
    return (
        f"The model's answer is not {wanted}: {reason}.{causes.get(finish_reason, '')} "
        f"The answer: {excerpt!r}"
    )
