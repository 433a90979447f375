"""The module of functions that blocks import, run by an interpreter in its own process."""

import collections.abc as abc
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from textwrap import indent as push
from typing import Any, cast

import pytest

from cellblock.errors import FunctionError
from cellblock.functions.imports import import_line
from cellblock.functions.module import (
    FUNCTION_PROMPT_TEMPLATE,
    Alias,
    FunctionModule,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    ImportFromModule,
    with_requirements,
)
from cellblock.functions.module import with_requirements as needs
from tests.functions.function_files import import_text, printed, refusal_message, run_with_module

AnyFunction = Callable[..., Any]


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def doubled(a: int) -> int:
    return add(a, a)


async def later(a: int) -> int:
    """Return `a` later."""
    return a


@with_requirements(
    python_packages=["tabulate", "pandas>=2"],
    global_imports=[
        "json",
        Alias("collections.abc", "abc"),
        ImportFromModule("textwrap", ["dedent", Alias("indent", "push")]),
    ],
)
def described(value: abc.Sized) -> str:
    return push(dedent(" " + json.dumps(len(value))), "> ")


def test_plain_functions_work_and_may_call_each_other(tmp_path: Path) -> None:
    module = FunctionModule([doubled, add])
    assert module.names == ("doubled", "add")
    assert printed(module, "doubled(4)", tmp_path) == "8"


def test_module_has_the_requested_name(tmp_path: Path) -> None:
    module = FunctionModule([add], "tools")
    assert run_with_module(module, "import tools; print(tools.add(1))", tmp_path) == "3\n"


def test_multi_line_decorator_is_removed_and_its_imports_are_at_the_top(tmp_path: Path) -> None:
    module = FunctionModule([described])
    imports = (
        "import json\nimport collections.abc as abc\nfrom textwrap import dedent, indent as push"
    )
    assert module.source.startswith(f"{imports}\n\n\ndef described(")
    assert printed(module, "described('ab')", tmp_path) == "> 2"


def test_example_of_the_autogen_documentation_works(tmp_path: Path) -> None:
    text = """\
import pandas
from cellblock import with_requirements

@with_requirements(python_packages=["pandas"], global_imports=["pandas"])
def load_data() -> pandas.DataFrame:
    \'\'\'Load some sample data.

    Returns:
        pandas.DataFrame: A DataFrame with a name and an age column
    \'\'\'
    return pandas.DataFrame({"name": ["Sam", "Li"], "age": [25, 30]})
"""
    module = FunctionModule([import_text(text, tmp_path).load_data])
    assert module.packages == ("pandas",)
    assert module.stubs().startswith("def load_data() -> pandas.DataFrame:\n")
    assert printed(module, "load_data()['age'].sum()", tmp_path) == "55"


def test_decorated_function_stays_callable_with_its_name_and_docstring() -> None:
    @with_requirements(["x"])
    def kept(a: int) -> int:
        """Add one."""
        return a + 1

    assert kept(1) == 2
    assert (cast(Any, kept).__name__, kept.__doc__) == ("kept", "Add one.")


def test_packages_of_all_kinds_of_functions_are_unique_and_in_order() -> None:
    text = FunctionWithRequirements.from_str("def f(): pass", ["requests", "tabulate"])
    wrapped = FunctionWithRequirements.from_callable(add, ["numpy"])
    assert FunctionModule([described, text, wrapped]).packages == (
        "tabulate",
        "pandas>=2",
        "requests",
        "numpy",
    )


def test_from_callable_gives_the_function_to_blocks(tmp_path: Path) -> None:
    module = FunctionModule([FunctionWithRequirements.from_callable(add)])
    assert printed(module, "add(2, b=5)", tmp_path) == "7"


def test_stacked_requirements_are_joined(tmp_path: Path) -> None:
    @needs(["b"], global_imports=["math"])
    @with_requirements(["a"])
    def half(x: float) -> float:
        return math.floor(x / 2)

    module = FunctionModule([half])
    assert module.packages == ("b", "a")
    assert "@" not in module.source
    assert printed(module, "half(5)", tmp_path) == "2"


def test_async_function_works_and_its_stub_is_async(tmp_path: Path) -> None:
    module = FunctionModule([later])
    assert module.stubs() == 'async def later(a: int) -> int:\n    """Return `a` later."""\n    ...'
    code = "import asyncio, functions; print(asyncio.run(functions.later(6)))"
    assert run_with_module(module, code, tmp_path) == "6\n"


def test_star_import_provides_unknown_names(tmp_path: Path) -> None:
    text = FunctionWithRequirements.from_str(
        "def root(): return sqrt(4)", global_imports=[ImportFromModule("math", ["*"])]
    )
    assert printed(FunctionModule([text]), "root()", tmp_path) == "2.0"


def test_imports_keep_their_order_and_appear_once() -> None:
    first = FunctionWithRequirements.from_str(
        "def a(): pass", global_imports=["zlib", "abc", "json"]
    )
    second = FunctionWithRequirements.from_str(
        "def b(): pass", global_imports=["json", "ast", "zlib"]
    )
    assert FunctionModule([first, second]).source.split("\n\n\n")[0] == (
        "import zlib\nimport abc\nimport json\nimport ast"
    )


def test_conflicting_names_are_refused() -> None:
    first = FunctionWithRequirements.from_str("def a(): pass", global_imports=[Alias("json", "x")])
    second = FunctionWithRequirements.from_str("def b(): pass", global_imports=[Alias("abc", "x")])
    third = FunctionWithRequirements.from_str("def x(): pass")
    assert "Two imports bind 'x': json and abc" in refusal_message(first, second)
    assert "'x' is defined twice" in refusal_message(first, third)
    assert "'x' is defined twice" in refusal_message(third, third)


def test_submodules_of_one_package_do_not_clash() -> None:
    given = FunctionWithRequirements.from_str(
        "def a(): return os.path", global_imports=["os.path", "os"]
    )
    assert "import os.path\nimport os\n" in FunctionModule([given]).source


def test_module_that_would_import_itself_is_refused() -> None:
    given = FunctionWithRequirements.from_str("def a(): pass", global_imports=["json.decoder"])
    with pytest.raises(FunctionError, match="'json' would import itself"):
        FunctionModule([given], "json")


NO_IMPORTS: list[Any] = ["os\nimport sys", "", "a b", ".x", 3, ImportFromModule("..x", ["y"])]


def test_global_import_that_is_not_one_absolute_import_is_refused() -> None:
    for item in NO_IMPORTS:
        with pytest.raises(FunctionError, match="global_imports"):
            with_requirements(global_imports=[item])


NO_PACKAGES: list[Any] = ["pandas", ["--index-url=x"], [""], ["a\n-r b"], [3], add]


def test_invalid_packages_are_refused() -> None:
    for packages in NO_PACKAGES:
        with pytest.raises(FunctionError, match="python_packages"):
            with_requirements(packages)


def test_one_imported_name_needs_no_list() -> None:
    pandas, alias = ImportFromModule("pandas", "DataFrame"), Alias("DataFrame", "df")
    assert pandas == ImportFromModule("pandas", ["DataFrame"])
    assert import_line(pandas) == "from pandas import DataFrame"
    line = import_line(ImportFromModule("pandas", alias))
    assert line == "from pandas import DataFrame as df"
    assert ImportFromModule("math", ["sqrt"]) == ImportFromModule("math", ("sqrt",))


def test_text_is_not_run_on_creation(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    given = FunctionWithRequirements.from_str(
        f"def f(a=__import__('pathlib').Path({str(marker)!r}).touch()): return 1"
    )
    module = FunctionModule([given])
    module.stubs()
    assert not marker.exists()
    run_with_module(module, "import functions", tmp_path)
    assert marker.exists()


def test_text_may_be_indented_async_and_decorated(tmp_path: Path) -> None:
    given = FunctionWithRequirements.from_str(
        """
        @functools.cache
        async def f():
            return 5
        """,
        global_imports=["functools"],
    )
    code = "import asyncio, functions; print(asyncio.run(functions.f()))"
    assert run_with_module(FunctionModule([given]), code, tmp_path) == "5\n"


@pytest.mark.parametrize(
    "text",
    ["", "x = 1", "import os\ndef f(): pass", "def f(): pass\ndef g(): pass", "class A: pass"],
)
def test_text_must_be_exactly_one_function(text: str) -> None:
    with pytest.raises(ValueError, match="^The string must contain exactly one function$"):
        FunctionWithRequirementsStr(text)


@pytest.mark.parametrize(
    "text", ["def f(:", "def f(a, a): pass", "def f(): break", "\0", "\ud800", "  def f():\n1"]
)
def test_text_that_does_not_compile_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^Could not compile function: "):
        FunctionWithRequirementsStr(text)


def test_text_with_a_name_that_the_module_lacks_is_refused() -> None:
    given = FunctionWithRequirements.from_str("def f(): return pandas.DataFrame()")
    assert "needs the name 'pandas'" in refusal_message(given)


def test_text_function_cannot_be_called() -> None:
    with pytest.raises(
        NotImplementedError, match="^String based function with requirement objects are not"
    ):
        FunctionWithRequirements.from_str("def f(): pass")()


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a.b", "class", "a b"])
def test_module_name_must_be_an_identifier(name: str) -> None:
    with pytest.raises(ValueError, match="^Module name must be a valid Python identifier$"):
        FunctionModule([], name)


def test_module_without_functions_is_empty() -> None:
    module = FunctionModule()
    assert (module.source, module.packages, module.names, module.stubs()) == ("", (), (), "")


def test_stub_has_every_kind_of_parameter_and_the_dedented_docstring() -> None:
    def f(a: "int", /, *rest: str, b: float = 0.5, **more: Any) -> None:
        """Do it.

        Args:
            a: some "quoted" thing
        """

    assert FunctionModule(
        [cast(AnyFunction, needs(global_imports=[ImportFromModule("typing", ["Any"])])(f))]
    ).stubs() == (
        "def f(a: 'int', /, *rest: str, b: float=0.5, **more: Any) -> None:\n"
        '    """Do it.\n\n    Args:\n        a: some "quoted" thing\n    """\n    ...'
    )


def test_prompt_names_the_module_and_shows_the_stubs() -> None:
    module = FunctionModule([add, later], "tools")
    text = module.format_for_prompt()
    assert text.startswith(
        "You have access to the following user defined functions. They can be accessed from"
    )
    assert "module called `tools` by their function names.\n\nFor example, if there was a" in text
    assert text.endswith(f"writing `from tools import foo`\n\n{module.stubs()}")
    assert module.format_for_prompt("$functions") == module.stubs()
    assert "$functions" in FUNCTION_PROMPT_TEMPLATE


def test_saved_functions_are_loaded_as_the_same_module(tmp_path: Path) -> None:
    text = "from __future__ import annotations\ndef shown(x: Unknown) -> None: ...\n"
    module = FunctionModule([described, add, import_text(text, tmp_path).shown], "tools")
    again = FunctionModule.from_list(json.loads(json.dumps(module.to_list())), "tools")
    assert (again.source, again.packages, again.stubs()) == (
        module.source,
        module.packages,
        module.stubs(),
    )
    assert all(isinstance(item, FunctionWithRequirementsStr) for item in again.functions)
    assert again.to_list() == module.to_list()


DAMAGES: list[dict[str, object]] = [
    {"source": 3},
    {"source": "import os"},
    {"python_packages": "pandas"},
    {"global_imports": {}},
    {"global_imports": [3]},
    {"global_imports": [{"name": "a", "alias": "b", "more": 1}]},
    {"global_imports": [{"module": "a", "imports": [{"module": "a", "imports": []}]}]},
    {"more": 1},
]


def test_damaged_saved_function_is_refused() -> None:
    for change in DAMAGES:
        saved = {**FunctionModule([add]).to_list()[0], **change}
        with pytest.raises(FunctionError):
            FunctionModule.from_list([saved])


@dataclass
class AutoGenFunction:
    """Similar to AutoGen's class. With the real ones: tests/integrations/test_autogen.py."""

    func: Any
    python_packages: Any = ()
    global_imports: Any = ()

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError


def test_functions_with_requirements_of_autogen_are_taken_by_their_attributes() -> None:
    text = AutoGenFunction("def root(x):\n    return math.sqrt(x)\n", ["numpy"], ["math"])
    module = FunctionModule([AutoGenFunction(add, ["requests"]), text])
    assert (module.names, module.packages) == (("add", "root"), ("requests", "numpy"))
    again = FunctionModule(FunctionModule.from_list(module.to_list()).functions)
    assert again.names == ("add", "root")
    for wrong, message in (
        (AutoGenFunction("x = 1"), "exactly one function"),
        (AutoGenFunction(add, "pandas"), "must be a list of requirements"),
        (AutoGenFunction(add, [], [3]), "3 in global_imports is not a name"),
        (AutoGenFunction(lambda: 1), "is a lambda"),
    ):
        with pytest.raises(FunctionError, match=message):
            FunctionModule([wrong])
