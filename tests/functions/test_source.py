"""Which functions can be given to blocks, and the reason for refusing the others."""

import collections.abc as abc
import functools
from collections.abc import Callable
from functools import cache
from os import open
from pathlib import Path
from typing import Any

import pytest

from cellblock.functions.module import (
    FunctionModule,
    FunctionWithRequirements,
    ImportFromModule,
    with_requirements,
)
from tests.functions.function_files import import_text, printed, refusal_message

LIMIT = 3
AnyFunction = Callable[..., Any]


class Helper:
    def method(self) -> int:
        return LIMIT


def forward_calls(func: AnyFunction) -> AnyFunction:
    @functools.wraps(func)
    def wrapper(*args: object) -> object:
        return func(*args)

    return wrapper


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def test_nested_function_is_dedented_but_not_its_strings(tmp_path: Path) -> None:
    def page() -> str:
        text = """first
            second
last"""
        # A comment.
        return (
            text
            + f"""
        {text.count("a")}"""
        )

    module = FunctionModule([page])
    assert printed(module, "repr(page())", tmp_path) == repr(page())


def test_function_nested_with_tabs_works(tmp_path: Path) -> None:
    written = import_text("def outer():\n\tdef inner(x):\n\t\treturn x\n\treturn inner\n", tmp_path)
    module = FunctionModule([written.outer()])
    assert printed(module, "inner(3)", tmp_path) == "3"


def test_nested_function_may_call_itself(tmp_path: Path) -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    module = FunctionModule([factorial])
    assert printed(module, "factorial(5)", tmp_path) == "120"


def test_decorator_is_kept_if_the_module_has_it(tmp_path: Path) -> None:
    @with_requirements(global_imports=[ImportFromModule("functools", ["cache"])])
    @cache
    def drawn() -> list[int]:
        return []

    module = FunctionModule([drawn])
    assert printed(module, "drawn() is drawn()", tmp_path) == "True"


MORE = """\
import functools
from cellblock import with_requirements

def more(func):
    import functools
    return functools.wraps(func)(lambda *args: func(*args) + 100)

@more
@with_requirements(["pandas"])
def one(): return 1
"""


def test_decorator_above_with_requirements_keeps_the_requirements(tmp_path: Path) -> None:
    written = import_text(MORE, tmp_path)
    module = FunctionModule([written.more, written.one])
    assert module.packages == ("pandas",)
    assert printed(module, "one()", tmp_path) == "101"


def test_missing_or_later_defined_decorator_is_refused(tmp_path: Path) -> None:
    written = import_text(MORE, tmp_path)
    assert "'more' of its decorator" in refusal_message(written.one)
    assert "Pass 'more' before 'one'" in refusal_message(written.one, written.more)


def test_wrapper_that_is_not_in_the_source_is_refused() -> None:
    assert "is wrapped by a function" in refusal_message(forward_calls(add))
    assert "is wrapped by a _lru_cache_wrapper" in refusal_message(cache(add))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: 1, "it is a lambda"),
        (len, "it is built in"),
        (functools.partial(add, 1), "it is a partial"),
        (Helper().method, "it is a method"),
        (Helper.method, "it is a method"),
        (Helper, "it is a class"),
        ("def f(): pass", "use FunctionWithRequirements.from_str"),
        (3, "it is of type 'int'"),
        (with_requirements(["a"])(len), "it is built in"),
    ],
)
def test_other_objects_are_refused_with_the_reason(function: object, reason: str) -> None:
    assert reason in refusal_message(function)


def test_function_without_source_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("def made(): pass", names)
    assert "The source of 'made' cannot be read" in refusal_message(names["made"])


def test_function_whose_file_has_changed_is_refused(tmp_path: Path) -> None:
    written = import_text("def first(): pass\n", tmp_path)
    Path(str(written.__file__)).write_text("def other(): pass\n")
    assert "is not that function" in refusal_message(written.first)


def test_needed_class_is_named() -> None:
    def uses() -> object:
        return [Helper() for _ in range(3)]

    assert "needs the class 'Helper'" in refusal_message(uses)


def test_needed_global_is_named_wherever_it_is_used() -> None:
    def in_default(a: int = LIMIT) -> int:
        return a

    def in_annotation(a: Helper) -> None: ...

    def in_nested_class() -> object:
        class Inner:
            size = 1
            limit = size + LIMIT

        return Inner

    assert "the name 'LIMIT'" in refusal_message(in_default)
    assert "the class 'Helper'" in refusal_message(in_annotation)
    assert refusal_message(in_nested_class).count("the name") == 1


def test_needed_module_is_named_with_its_real_name() -> None:
    def uses() -> object:
        return abc.Sized

    assert "the module 'collections.abc' as 'abc'" in refusal_message(uses)


def test_name_that_shadows_a_builtin_is_not_treated_as_the_builtin() -> None:
    def uses() -> int:
        return open("x", 0)

    assert "the name 'open'" in refusal_message(uses)
    given = FunctionWithRequirements(uses, global_imports=[ImportFromModule("os", ["open"])])
    assert "from os import open" in FunctionModule([given]).source


def test_closure_is_refused_with_the_variable() -> None:
    count = 1

    def read() -> int:
        return count

    def written() -> None:
        nonlocal count
        count += 1

    assert "'count' of the function around it" in refusal_message(read)
    assert "nonlocal 'count'" in refusal_message(written)


def test_postponed_annotations_stay_postponed(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\n"
        "def shown(table: pandas.DataFrame, rows: int = 3) -> dict[str, polars.Series]:\n"
        "    return {}\n"
    )
    first = FunctionWithRequirements.from_str("def first(): pass", global_imports=["json"])
    module = FunctionModule([first, import_text(text, tmp_path).shown])
    assert module.source.startswith("from __future__ import annotations\nimport json\n")
    assert (
        "def shown(table: pandas.DataFrame, rows: int=3) -> dict[str, polars.Series]:\n    ..."
        in module.stubs()
    )
    assert printed(module, "shown(1)", tmp_path) == "{}"
