"""AutoGen's functions with requirements are taken by their attributes, with its imports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cellblock import FunctionError
from cellblock.functions.module import FunctionModule

# Similar to AutoGen's classes, which are no dependency. With the real ones:
# tests/integrations/test_autogen.py.


@dataclass(frozen=True)
class AutoGenAlias:
    name: str
    alias: str


@dataclass(frozen=True)
class AutoGenImport:
    module: str
    imports: tuple[str | AutoGenAlias, ...]


@dataclass
class AutoGenFunction:
    func: Any
    python_packages: Sequence[str] = field(default_factory=list[str])
    global_imports: Sequence[Any] = field(default_factory=list[Any])

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError


def with_requirements(
    python_packages: Sequence[str], global_imports: Sequence[Any]
) -> Callable[[Callable[..., Any]], AutoGenFunction]:
    def decorate(func: Callable[..., Any]) -> AutoGenFunction:
        made = AutoGenFunction(func, python_packages, global_imports)
        functools.update_wrapper(made, func)
        return made

    return decorate


needs = with_requirements


@with_requirements(
    python_packages=["pandas>=2"],
    global_imports=[
        "math",
        AutoGenAlias("statistics", "stats"),
        AutoGenImport("json", ("loads", AutoGenAlias("dumps", "text_of"))),
    ],
)
def mean_text(values: list[float]) -> str:
    """Return the mean as JSON."""
    return text_of(math.floor(stats.mean(values)))  # type: ignore[name-defined]  # noqa: F821


@needs(["six"], ["six"])
def text_type() -> type:
    return six.text_type  # type: ignore[name-defined]  # noqa: F821


def add(a: int, b: int) -> int:
    return a + b


def test_a_decorated_function_brings_its_packages_and_imports() -> None:
    module = FunctionModule([mean_text, text_type])
    assert (module.names, module.packages) == (("mean_text", "text_type"), ("pandas>=2", "six"))
    assert module.source.startswith(
        "from __future__ import annotations\n"
        "import math\nimport statistics as stats\nfrom json import loads, dumps as text_of\n"
        "import six\n"
    )
    assert "with_requirements" not in module.source
    assert "needs" not in module.source


def test_a_function_without_the_decorator_and_one_as_text_are_taken() -> None:
    text = AutoGenFunction("def root(x):\n    return math.sqrt(x)\n", ["numpy"], ["math"])
    module = FunctionModule([AutoGenFunction(add, ["requests"]), text])
    assert (module.names, module.packages) == (("add", "root"), ("requests", "numpy"))
    assert FunctionModule(FunctionModule.from_list(module.to_list()).functions).names == (
        "add",
        "root",
    )


def test_what_is_wrong_with_one_is_named() -> None:
    with pytest.raises(FunctionError, match="exactly one function"):
        FunctionModule([AutoGenFunction("x = 1")])
    with pytest.raises(FunctionError, match="must be a list of requirements"):
        FunctionModule([AutoGenFunction(add, "pandas")])
    with pytest.raises(FunctionError, match=r"3 in global_imports is not a name"):
        FunctionModule([AutoGenFunction(add, [], [3])])
    with pytest.raises(FunctionError, match=r"is a lambda"):
        FunctionModule([AutoGenFunction(lambda: 1)])
