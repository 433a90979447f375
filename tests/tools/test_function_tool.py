"""Functions as tools; what they have in common with AutoGen's is in `tests/transcripts`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field, model_serializer

from cellblock import CancellationToken, ComponentError, load_component
from cellblock.tools import BaseTool, FunctionTool


class Node(BaseModel):
    """A node of a tree."""

    name: str
    children: list[Node] = []


class Place(BaseModel):
    city: str
    country: str


class Adder:
    def __init__(self, start: int) -> None:
        self.start = start

    async def __call__(self, number: int) -> int:
        return self.start + number

    def add(self, number: int) -> int:
        return self.start + number


def depth(tree: Node) -> int:
    return 1 + max((depth(child) for child in tree.children), default=0)


def odd_names(schema: str, _hidden: int, model_name: str = "m", copy: bool = False) -> str:
    return f"{schema} {_hidden} {model_name} {copy}"


def positional_only(a: int, /, b: int) -> int:
    return a - b


def visit(place: Place) -> str:
    return place.city


def describe(size: Annotated[int, Field(description="In cm.", ge=1)]) -> int:
    return size


def no_type(a) -> None:  # type: ignore[no-untyped-def]  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType] - the mistake
    pass


def any_number(*numbers: int) -> None:
    pass


def thread_name() -> str:
    return threading.current_thread().name


def run(function: Callable[..., Any], **arguments: Any) -> Any:
    tool = FunctionTool(function, "A tool.")
    return asyncio.run(tool.run_json(arguments, CancellationToken()))


def test_parameters_may_have_names_that_pydantic_uses() -> None:
    tool = FunctionTool(odd_names, "Odd.")
    properties = tool.schema.get("parameters", {"properties": {}})["properties"]
    assert list(properties) == ["schema", "_hidden", "model_name", "copy"]
    assert run(odd_names, schema="s", _hidden=1, copy=True) == "s 1 m True"


def test_methods_callable_objects_and_positional_only_parameters_are_called() -> None:
    assert run(Adder(5).add, number=1) == 6
    assert run(Adder(5), number="2") == 7
    assert run(positional_only, a=5, b=3) == 2


def test_a_function_that_is_not_async_does_not_run_in_the_loops_thread() -> None:
    assert run(thread_name) != threading.current_thread().name


def test_a_description_may_be_a_pydantic_field() -> None:
    tool = FunctionTool(describe, "Describe.")
    properties = tool.schema.get("parameters", {"properties": {}})["properties"]
    assert properties["size"]["description"] == "In cm."
    with pytest.raises(ValueError, match="size: Input should be greater than or equal to 1"):
        run(describe, size=0)


def test_a_type_that_contains_itself_keeps_its_definition() -> None:
    parameters: Any = FunctionTool(depth, "Depth.").schema.get("parameters")
    tree = parameters["properties"]["tree"]
    assert tree["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert "Node" in parameters["$defs"]
    assert run(depth, tree={"name": "a", "children": [{"name": "b"}]}) == 2


def test_strict_allows_no_other_properties_at_any_depth() -> None:
    parameters: Any = FunctionTool(visit, "Visit.", strict=True).schema.get("parameters")
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["place"]["additionalProperties"] is False


def test_strict_refuses_optional_arguments_at_any_depth() -> None:
    with pytest.raises(ValueError, match="Default arguments are not allowed in strict mode"):
        FunctionTool(depth, "Depth.", strict=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (cast(Callable[..., Any], no_type), "Parameter 'a' of function 'no_type' has no type"),
        (any_number, "'any_number' takes any number of arguments"),
    ],
)
def test_signatures_that_a_model_cannot_use_are_refused(
    function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FunctionTool(function, "A tool.")


def test_a_type_that_is_not_defined_is_named() -> None:
    def function(a: int) -> None:
        pass

    function.__annotations__["a"] = "Missing"
    with pytest.raises(ValueError, match="name 'Missing' is not defined"):
        FunctionTool(function, "A tool.")


def test_wrong_arguments_are_explained_in_one_line_each() -> None:
    with pytest.raises(ValueError, match="tool 'positional_only'") as caught:
        run(positional_only, a="x")
    assert str(caught.value) == (
        "The arguments of tool 'positional_only' are invalid. a: Input should be a valid integer, "
        "unable to parse string as an integer; b: Field required."
    )
    tool = FunctionTool(depth, "Depth.")
    wrong: Any = [1]
    with pytest.raises(ValueError, match="arguments: Input should be"):
        asyncio.run(tool.run_json(wrong, CancellationToken()))


def test_the_schema_of_a_tool_cannot_be_changed_from_outside() -> None:
    tool = FunctionTool(visit, "Visit.")
    tool.schema["name"] = "other"
    assert tool.name == "visit"


def test_no_source_code_of_a_configuration_is_executed() -> None:
    saved: dict[str, Any] = {
        "provider": "autogen_core.tools.FunctionTool",
        "component_type": "tool",
        "version": 1,
        "component_version": 1,
        "config": {
            "source_code": "def f(): raise SystemExit('executed')",
            "name": "f",
            "description": "",
            "global_imports": [],
            "has_cancellation_support": False,
        },
    }
    with pytest.raises(ComponentError, match=r"'f' is not loaded.*FunctionTool\(func"):
        load_component(saved)
    with pytest.raises(ComponentError, match="'visit' is a function, and a function cannot be"):
        FunctionTool(visit, "Visit.").dump_component()


def test_a_tool_of_ones_own_needs_run_only() -> None:
    class Visit(BaseTool[Place, str]):
        def __init__(self) -> None:
            super().__init__(Place, str, "visit", "Visit a place.")

        async def run(self, args: Place, cancellation_token: CancellationToken) -> str:
            return f"{args.city} in {args.country}"

    arguments = {"city": "Rome", "country": "Italy"}
    assert asyncio.run(Visit().run_json(arguments, CancellationToken())) == "Rome in Italy"
    assert Visit().args_type() is Place


class Celsius(BaseModel):
    degrees: int

    @model_serializer
    def text(self) -> str:
        return f"{self.degrees} °C"


def test_a_result_that_serializes_itself_as_text_is_not_quoted() -> None:
    tool = FunctionTool(lambda: Celsius(degrees=3), "Measure.", name="measure")
    assert tool.return_value_as_string(Celsius(degrees=3)) == "3 °C"
    assert tool.state_type is None
