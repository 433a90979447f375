"""BaseTool: the base class of your own tools."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from ..cancellation import CancellationToken
from ..components import Component
from ..models.image import Image
from ..models.tool_schema import ToolSchema
from .call_spans import record_result, trace_call
from .parameters import parameters_schema
from .tool_result import ImageResultContent, ResultContent, TextResultContent

ArgsT = TypeVar("ArgsT", bound=BaseModel)
ReturnT = TypeVar("ReturnT")


class BaseTool(Component, ABC, Generic[ArgsT, ReturnT]):
    """A tool that a model can call: implement `run`.

    args_type     a pydantic class with a field for each argument
    return_type   the class of what `run` returns
    name          the name by which the model calls the tool
    description   what the tool does, for the model
    strict        ask the service to follow the schema exactly; every argument must be required

    Raise `ValueError` if `strict` and an argument is optional.
    """

    component_type: ClassVar[str] = "tool"

    def __init__(
        self,
        args_type: type[ArgsT],
        return_type: type[ReturnT],
        name: str,
        description: str,
        strict: bool = False,
    ) -> None:
        self._args_type = args_type
        self._return_type = return_type
        self._schema = ToolSchema(
            name=name,
            description=description,
            parameters=parameters_schema(args_type, strict=strict),
            strict=strict,
        )

    @abstractmethod
    async def run(self, args: ArgsT, cancellation_token: CancellationToken) -> ReturnT:
        """Do the work and return its result. The model is shown any exception."""

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> ReturnT:
        """Run the tool with the arguments that a model wrote.

        `call_id` identifies the call, for subclasses. Raise `ValueError` if the arguments do not
        match the schema, and what `run` raises.
        """
        with trace_call(self.name, self.description, args, call_id) as call:
            value = await self.run(self._validated(args), cancellation_token)
            if call.is_open:
                record_result(call, self.return_value_as_string(value), self.is_failure(value))
        return value

    def _validated(self, args: Mapping[str, Any]) -> ArgsT:
        try:
            return self._args_type.model_validate(args)
        except ValidationError as error:
            problems = [
                f"{'.'.join(str(part) for part in each['loc']) or 'arguments'}: {each['msg']}"
                for each in error.errors(include_url=False)
            ]
            raise ValueError(
                f"The arguments of tool {self.name!r} are invalid. " + "; ".join(problems) + "."
            ) from error

    def return_value_as_string(self, value: Any) -> str:
        """Return the result `value` as text for the model."""
        if isinstance(value, BaseModel):
            dumped: object = value.model_dump(mode="json")
            # A `model_serializer` can return a text.
            return dumped if isinstance(dumped, str) else json.dumps(dumped, ensure_ascii=False)
        return str(value)

    def return_value_as_contents(self, value: Any) -> list[ResultContent]:
        """Return the result `value` as the contents of a `ToolResult`."""
        if isinstance(value, Image):
            return [ImageResultContent(content=value)]
        return [TextResultContent(content=self.return_value_as_string(value))]

    def is_failure(self, value: Any) -> bool:
        """Return True if the result `value` reports a failure. False unless a subclass says so."""
        return False

    @property
    def state_type(self) -> type[BaseModel] | None:
        """The class of the tool's state. None unless a subclass says otherwise."""
        return None

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        return self._schema["name"]

    @property
    def description(self) -> str:
        """What the tool does, for the model."""
        return self._schema.get("description", "")

    @property
    def strict(self) -> bool:
        """Whether the service is asked to follow the schema exactly."""
        return self._schema.get("strict", False)

    @property
    def schema(self) -> ToolSchema:
        """The description of the tool for the model."""
        return copy.deepcopy(self._schema)

    def args_type(self) -> type[ArgsT]:
        """Return the class of the arguments."""
        return self._args_type

    def return_type(self) -> type[ReturnT]:
        """Return the class of the result."""
        return self._return_type

    async def save_state_json(self) -> Mapping[str, Any]:
        """Return the state as JSON values. A tool has none unless a subclass says so."""
        return {}

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state_json` returned."""
