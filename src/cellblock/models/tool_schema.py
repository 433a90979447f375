"""How a tool is described to a model."""

from __future__ import annotations

from typing import Any, NotRequired, Protocol, Required, runtime_checkable

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12


class ParametersSchema(TypedDict):
    """The JSON schema of a tool's arguments: always an object."""

    type: str
    properties: dict[str, Any]
    required: NotRequired[list[str]]
    additionalProperties: NotRequired[bool]


class ToolSchema(TypedDict):
    """A tool as the model sees it. `strict` asks the service to follow the schema exactly."""

    name: Required[str]
    description: NotRequired[str]
    parameters: NotRequired[ParametersSchema]
    strict: NotRequired[bool]


@runtime_checkable
class DescribesTool(Protocol):
    """An object with the schema of a tool, such as `cellblock.tools.BaseTool`."""

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        ...

    @property
    def schema(self) -> ToolSchema:
        """The description for the model."""
        ...


ToolLike = DescribesTool | ToolSchema


def schema_of(tool: ToolLike) -> ToolSchema:
    """Return the schema of `tool`, which may be the schema already."""
    return tool.schema if isinstance(tool, DescribesTool) else tool


def name_of(tool: ToolLike) -> str:
    """Return the name of `tool`."""
    return schema_of(tool)["name"]
