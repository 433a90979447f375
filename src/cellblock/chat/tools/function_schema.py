"""Describe a Python function to a chat model, as JSON schema made from the signature.

    def exchange(amount: Annotated[float, "The amount"], to: Literal["EUR", "USD"] = "EUR") -> str

A parameter's description is the text in `Annotated`, else its name. The names are those of
`autogen.function_utils`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from ...tools.parameters import has_reference, inline_definitions
from .context_variables import PARAMETER, ContextVariables
from .function_signature import get_typed_return_annotation, get_typed_signature, name_of_function

_log = logging.getLogger(__name__)
_DEFINITIONS = "$defs"
JsonSchema = dict[str, Any]
"""A JSON schema, or a function for a chat model, whose parameters have one."""


class Parameters(BaseModel):
    """The schema of a function's parameters. It can have definitions under `$defs`."""

    model_config = ConfigDict(extra="allow")

    type: Literal["object"] = "object"
    properties: dict[str, JsonSchema]
    required: list[str]


class Function(BaseModel):
    """A function as a chat model sees it."""

    description: Annotated[str, Field(description="Description of the function")]
    name: Annotated[str, Field(description="Name of the function")]
    parameters: Annotated[Parameters, Field(description="Parameters of the function")]


class ToolFunction(BaseModel):
    """A function as a tool of a chat model."""

    type: Literal["function"] = "function"
    function: Annotated[Function, Field(description="Function under tool")]


def get_function_schema(
    f: Callable[..., Any], *, name: str | None = None, description: str
) -> JsonSchema:
    """Return the description of the function `f` for the `tools` of a chat model.

    name   None means the function's name

    Raise `TypeError` if a parameter without default has no type, and `ValueError` if a type is
    not defined or has no JSON schema.
    """
    signature = _without_context(get_typed_signature(f))
    required = get_required_params(signature)
    _check_annotations(f, signature, required)
    parameters = get_parameters(
        required, get_param_annotations(signature), get_default_values(signature)
    )
    function_name = name or name_of_function(f)
    function = Function(description=description, name=function_name, parameters=parameters)
    return ToolFunction(function=function).model_dump()


def _without_context(signature: inspect.Signature) -> inspect.Signature:
    """Return `signature` without the `ContextVariables`, which no model fills in."""
    named = signature.parameters.items()
    kept = [
        each for name, each in named if name != PARAMETER or each.annotation is not ContextVariables
    ]
    return signature.replace(parameters=kept)


def get_required_params(typed_signature: inspect.Signature) -> list[str]:
    """Return the names of the parameters without default."""
    parameters = typed_signature.parameters.values()
    return [each.name for each in parameters if each.default is each.empty]


def get_default_values(typed_signature: inspect.Signature) -> dict[str, Any]:
    """Return the defaults of the parameters that have one."""
    parameters = typed_signature.parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def get_param_annotations(typed_signature: inspect.Signature) -> dict[str, Any]:
    """Return the types of the parameters that have one."""
    parameters = typed_signature.parameters.values()
    return {each.name: each.annotation for each in parameters if each.annotation is not each.empty}


def get_missing_annotations(
    typed_signature: inspect.Signature, required: Sequence[str]
) -> tuple[set[str], set[str]]:
    """Return the parameters without type: those that are required, and those with a default."""
    parameters = typed_signature.parameters.values()
    untyped = {each.name for each in parameters if each.annotation is each.empty}
    return untyped & set(required), untyped - set(required)


def get_parameters(
    required: Sequence[str],
    param_annotations: Mapping[str, Any],
    default_values: Mapping[str, Any],
) -> Parameters:
    """Return the schema of the parameters. Those without type are left out."""
    properties, definitions = _properties(param_annotations, default_values)
    known = [name for name in required if name in param_annotations]
    return Parameters.model_validate(
        {"properties": properties, "required": known, **_definitions(definitions)}
    )


def get_parameter_json_schema(k: str, v: Any, default_values: Mapping[str, Any]) -> JsonSchema:
    """Return the schema of the parameter `k`, whose type is `v`."""
    properties, definitions = _properties({k: v}, default_values)
    return {**properties[k], **_definitions(definitions)}


def _check_annotations(
    f: Callable[..., Any], signature: inspect.Signature, required: Sequence[str]
) -> None:
    name = name_of_function(f)
    if get_typed_return_annotation(f) is None:
        _log.warning(
            "The return type of the function '%s' is not annotated. Although annotating it is "
            "optional, the function should return either a string, a subclass of "
            "'pydantic.BaseModel'.",
            name,
        )
    missing, untyped = get_missing_annotations(signature, required)
    if untyped:
        _log.warning(
            "The following parameters of the function '%s' with default values are not annotated: "
            "%s.",
            name,
            _quoted(untyped),
        )
    if missing:
        raise TypeError(
            f"All parameters of the function '{name}' without default values must be annotated. "
            f"The annotations are missing for the following parameters: {_quoted(missing)}"
        )


def _quoted(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _definitions(definitions: Mapping[str, Any]) -> JsonSchema:
    return {_DEFINITIONS: dict(definitions)} if definitions else {}


def _properties(
    annotations: Mapping[str, Any], default_values: Mapping[str, Any]
) -> tuple[dict[str, JsonSchema], Mapping[str, Any]]:
    """Return the schema of each parameter, and the definitions to which the schemas refer.

    Only a class that contains itself needs a definition. The others are put in their places:
    AutoGen leaves references that point to nothing.
    """
    schemas, definitions = _json_schemas(annotations)
    properties: dict[str, JsonSchema] = {}
    for name, annotation in annotations.items():
        schema = inline_definitions(schemas[name], definitions)
        if name in default_values:
            schema["default"] = to_jsonable_python(default_values[name], fallback=repr)
        schema["description"] = _description(name, annotation)
        properties[name] = schema
    return properties, definitions if has_reference(properties) else {}


def _json_schemas(
    annotations: Mapping[str, Any],
) -> tuple[dict[str, JsonSchema], Mapping[str, Any]]:
    try:
        adapters = {name: TypeAdapter[Any](t) for name, t in annotations.items()}
        schemas, whole = TypeAdapter.json_schemas(
            (name, "validation", adapter) for name, adapter in adapters.items()
        )
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ValueError(
            f"The type of one of the parameters {_quoted(set(annotations))} cannot be described "
            "to a model. Use types that JSON can express, and define classes at the top level of "
            f"their module. {error}"
        ) from error
    return {name: schema for (name, _), schema in schemas.items()}, whole.get(_DEFINITIONS, {})


def _description(name: str, annotation: Any) -> str:
    """Return the text in `Annotated`, else the name. Raise `ValueError` if it is not text."""
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    for item in metadata:
        text = (item.description or name) if isinstance(item, FieldInfo) else item
        if not isinstance(text, str):
            raise ValueError(
                f"Invalid description {text} for parameter {name}, should be a string."
            )
        return text
    return name
