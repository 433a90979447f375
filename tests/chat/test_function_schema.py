"""What a chat model is told about a function."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from cellblock.chat.tools.function_schema import get_function_schema, get_parameter_json_schema
from cellblock.chat.tools.function_signature import get_typed_return_annotation, get_typed_signature


class Money(BaseModel):
    """An amount."""

    currency: Annotated[Literal["USD", "EUR"], Field(description="The code")]
    amount: Annotated[float, Field(ge=0)] = 100.0


class Order(BaseModel):
    price: Money
    more: list[Money] = []


class Folder(BaseModel):
    name: str
    folders: list[Folder] = []


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    return get_function_schema(function, description="d")["function"]["parameters"]


def test_the_description_of_a_field_is_used() -> None:
    def f(a: Annotated[int, Field(description="At least 3", ge=3)]) -> str:
        return str(a)

    assert parameters_of(f)["properties"]["a"] == {
        "type": "integer",
        "minimum": 3,
        "description": "At least 3",
    }


def test_a_pydantic_class_is_described_with_its_fields_and_its_default() -> None:
    dollar = Money(currency="USD", amount=1)

    def f(price: Annotated[Money, "The price"] = dollar) -> str:
        return str(price)

    price = parameters_of(f)["properties"]["price"]
    assert price["description"] == "The price"
    assert price["default"] == {"currency": "USD", "amount": 1.0}
    assert price["properties"]["currency"]["enum"] == ["USD", "EUR"]
    assert price["required"] == ["currency"]


def test_nested_classes_can_be_validated_without_other_documents() -> None:
    def f(order: Order) -> str:
        return str(order)

    schema = parameters_of(f)
    jsonschema.validate({"order": {"price": {"currency": "EUR"}}}, schema)
    with pytest.raises(jsonschema.ValidationError, match="'YEN' is not one of"):
        jsonschema.validate({"order": {"price": {"currency": "YEN"}}}, schema)


def test_a_class_that_contains_itself_can_be_validated() -> None:
    def f(folder: Folder) -> str:
        return str(folder)

    schema = parameters_of(f)
    jsonschema.validate({"folder": {"name": "a", "folders": [{"name": "b"}]}}, schema)
    with pytest.raises(jsonschema.ValidationError, match="'name' is a required property"):
        jsonschema.validate({"folder": {"name": "a", "folders": [{"nam": "b"}]}}, schema)
    alone = get_parameter_json_schema("folder", Folder, {})
    jsonschema.validate({"name": "a", "folders": [{"name": "b"}]}, alone)


def test_parameters_without_type_are_refused_unless_they_have_a_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def f(a, b=1, *, c: int):  # type: ignore[no-untyped-def]  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType] - the mistake
        return str(c)

    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(TypeError, match="missing for the following parameters: 'a'$"),
    ):
        parameters_of(f)  # pyright: ignore[reportUnknownArgumentType] - the mistake
    assert "The return type of the function 'f' is not annotated." in caplog.text
    assert "with default values are not annotated: 'b'." in caplog.text


def test_a_parameter_with_a_default_and_no_type_is_left_out() -> None:
    def f(a: int, b=1) -> str:  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType] - the mistake
        return str(a)

    assert parameters_of(f)["properties"].keys() == {"a"}  # pyright: ignore[reportUnknownArgumentType] - the mistake


def test_a_type_that_is_not_defined_is_named() -> None:
    def f(a: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
        return ""

    with pytest.raises(ValueError, match=r"'a'.*Missing"):
        parameters_of(f)  # pyright: ignore[reportUnknownArgumentType] - the mistake


def test_a_return_type_that_is_not_defined_does_no_harm() -> None:
    def f(a: int) -> Missing:  # type: ignore[name-defined]  # noqa: F821
        return a

    assert parameters_of(f)["required"] == ["a"]  # pyright: ignore[reportUnknownArgumentType] - the mistake


def test_a_type_that_json_cannot_express_is_refused() -> None:
    def f(a: Callable[..., Any], b: type[Any]) -> str:
        return str((a, b))

    with pytest.raises(ValueError, match="cannot be described to a model"):
        parameters_of(f)


def test_methods_partial_functions_and_objects_are_described() -> None:
    class Adder:
        def add(self, a: int) -> int:
            return a

        def __call__(self, a: int) -> int:
            return a

    def plus(a: int, b: int) -> int:
        return a + b

    for function, name in [
        (Adder().add, "add"),
        (Adder(), "Adder"),
        (functools.partial(plus, b=1), "plus"),
    ]:
        schema = get_function_schema(function, description="d")["function"]
        assert schema["name"] == name
        assert schema["parameters"]["properties"]["a"]["type"] == "integer"


def test_types_written_as_text_are_evaluated() -> None:
    def f(a: Annotated[int, "x"] = 1) -> Money:
        return Money(currency="EUR", amount=a)

    assert get_typed_signature(f).parameters["a"].annotation == Annotated[int, "x"]
    assert get_typed_return_annotation(f) is Money
