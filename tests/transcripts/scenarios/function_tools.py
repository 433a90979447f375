"""The schema of functions, calls of them, and a workbench with errors and other names."""

import functools
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


class Point(BaseModel):
    x: int
    y: float = Field(default=0.0, description="height")


class Shape(BaseModel):
    """A shape."""

    points: list[Point]
    kind: Literal["line", "area"]
    label: str | None = None


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def describe(
    shape: Shape,
    where: Annotated[str, "the place"] = "here",
    colour: Literal["red", "blue"] = "red",
    sizes: list[int] | None = None,
    options: dict[str, float] = {},  # noqa: B006
    *,
    origin: Point | None = None,
) -> str:
    return f"{type(shape).__name__} {where} {colour} {sizes} {options} {origin}"


async def with_token(text: str, cancellation_token: Any) -> str:
    return f"{text} {cancellation_token.is_cancelled()}"


def fail(text: str) -> str:
    raise ValueError(text)


def both_fail() -> None:
    raise ExceptionGroup("two", [ValueError("first"), ValueError("second")])


def point(x: int) -> Point:
    return Point(x=x)


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    functions = (add, describe, with_token, fail, both_fail, point, functools.partial(add, b=2))
    tools = [lib.FunctionTool(func, description=f"number {n}") for n, func in enumerate(functions)]
    token = lib.CancellationToken()
    for tool in tools:
        yield [tool.name, tool.description, tool.return_type().__name__]
        yield tool.schema
    yield lib.FunctionTool(add, "Add.", name="plus", strict=True).schema
    try:
        yield lib.FunctionTool(describe, "Describe.", strict=True).schema
    except ValueError as error:
        yield error
    shape = {"points": [{"x": 1}], "kind": "line"}
    yield await tools[0].run_json({"a": 1, "b": "2"}, token)
    yield await tools[1].run_json({"shape": shape, "origin": {"x": 3}, "other": 1}, token)
    yield await tools[2].run_json({"text": "hi"}, token)
    yield tools[5].return_value_as_string(await tools[5].run_json({"x": 1}, token))
    yield tools[5].return_value_as_string({"a": [1, None]})
    yield await tools[6].run_json({"a": 1}, token)

    workbench = lib.StaticWorkbench(tools[:6], tool_overrides={"add": lib.ToolOverride(name="sum")})
    async with workbench:
        yield [tool["name"] for tool in await workbench.list_tools()]
        for name, arguments in (
            ("sum", {"a": 1, "b": 2}),
            ("add", {"a": 1, "b": 2}),
            ("point", {"x": 4}),
            ("fail", {"text": "It failed."}),
            ("both_fail", None),
            ("missing", {}),
        ):
            result = await workbench.call_tool(name, arguments, token)
            yield result
            yield result.to_text()
        yield (await workbench.call_tool("add", {"a": "x"}, token)).is_error
        yield await workbench.save_state()
    for overrides in (
        {"add": lib.ToolOverride(name="point")},
        {"add": lib.ToolOverride(name="new"), "fail": lib.ToolOverride(name="new")},
    ):
        try:
            lib.StaticWorkbench(tools[:6], overrides)
        except ValueError as error:
            yield error
