"""The JSON schema of a tool's arguments, as model services accept it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from ..models.tool_schema import ParametersSchema

_REFERENCE = "#/$defs/"


def parameters_schema(args_type: type[BaseModel], *, strict: bool) -> ParametersSchema:
    """Return the schema of `args_type`, with the definitions that it refers to in their places.

    A strict schema allows no other properties in any object. Raise `ValueError` if `strict` and an
    argument is optional, which services refuse.
    """
    whole = args_type.model_json_schema()
    definitions: Mapping[str, Any] = whole.pop("$defs", {})
    schema = inline_definitions(whole, definitions, strict=strict)
    parameters = {
        "type": "object",
        "properties": schema.get("properties", {}),
        "required": schema.get("required", []),
        "additionalProperties": schema.get("additionalProperties", False),
    }
    if has_reference(parameters):
        parameters["$defs"] = definitions
    return cast(ParametersSchema, parameters)


def inline_definitions(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], *, strict: bool = False
) -> dict[str, Any]:
    """Return `schema` with the definitions that it refers to in their places.

    A reference inside the definition to which it points is left. `strict` is as in
    `parameters_schema`.
    """
    return cast(dict[str, Any], _Inliner(definitions, strict).inline(dict(schema), ()))


class _Inliner:
    """Replace references by what they refer to, except in a definition that contains itself."""

    def __init__(self, definitions: Mapping[str, Any], strict: bool) -> None:
        self._definitions = definitions
        self._strict = strict

    def inline(self, node: Any, parents: tuple[str, ...]) -> Any:
        """Return a copy of `node`, which is inside the definitions `parents`."""
        if isinstance(node, list):
            return [self.inline(item, parents) for item in cast(list[Any], node)]
        if not isinstance(node, dict):
            return node
        values = cast(dict[str, Any], node)
        reference = values.get("$ref")
        if isinstance(reference, str) and reference.startswith(_REFERENCE):
            name = reference.removeprefix(_REFERENCE)
            if name in parents:
                return dict(values)
            rest = {key: value for key, value in values.items() if key != "$ref"}
            return {**self.inline(self._definitions[name], (*parents, name)), **rest}
        copy = {key: self.inline(value, parents) for key, value in values.items()}
        return self._restricted(copy) if self._strict else copy

    def _restricted(self, schema: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties")
        if schema.get("type") != "object" or not isinstance(properties, dict):
            return schema
        if set(cast(dict[str, Any], properties)) - set(schema.get("required", [])):
            raise ValueError(
                "Strict mode is enabled, but not all input arguments are marked as required. "
                "Default arguments are not allowed in strict mode."
            )
        return {"additionalProperties": False, **schema}


def has_reference(node: Any) -> bool:
    """Return True if a reference is left in `node`."""
    if isinstance(node, list):
        return any(has_reference(item) for item in cast(list[Any], node))
    if not isinstance(node, dict):
        return False
    values = cast(dict[str, Any], node)
    return isinstance(values.get("$ref"), str) or any(map(has_reference, values.values()))
