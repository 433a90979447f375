"""Functions that blocks import: the module's text is run by a real interpreter of its own."""

import collections.abc as abc
import functools
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from os import open
from pathlib import Path
from textwrap import dedent
from textwrap import indent as push
from types import ModuleType
from typing import Any, cast

import pytest

from cellblock.errors import FunctionError
from cellblock.functions import (
    FUNCTION_PROMPT_TEMPLATE,
    Alias,
    Function,
    FunctionModule,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    ImportFromModule,
    with_requirements,
)
from cellblock.functions import with_requirements as needs

LIMIT = 3
AnyFunction = Callable[..., Any]


class Helper:
    def method(self) -> int:
        return LIMIT


def passed_on(func: AnyFunction) -> AnyFunction:
    @functools.wraps(func)
    def wrapper(*args: object) -> object:
        return func(*args)

    return wrapper


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def doubled(a: int) -> int:
    return add(a, a)


async def later(a: int) -> int:
    """Give `a`, later."""
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


def run(module: FunctionModule, code: str, folder: Path) -> str:
    """Give what `code` prints where `module` can be imported and this file cannot."""
    (folder / f"{module.module_name}.py").write_text(module.source, encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=15)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(text: str, folder: Path) -> ModuleType:
    """Give the module that a file of `text` is."""
    path = folder / f"written_{abs(hash(text))}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refusal(*functions: object) -> str:
    with pytest.raises(FunctionError) as caught:
        FunctionModule(cast(list[Function], functions))
    return str(caught.value)


def test_plain_functions_work_and_may_call_each_other(tmp_path: Path) -> None:
    module = FunctionModule([doubled, add])
    assert module.names == ("doubled", "add")
    assert run(module, "from functions import doubled; print(doubled(4))", tmp_path) == "8\n"


def test_module_has_the_name_that_was_asked_for(tmp_path: Path) -> None:
    module = FunctionModule([add], "tools")
    assert run(module, "import tools; print(tools.add(1))", tmp_path) == "3\n"


def test_multi_line_decorator_is_removed_and_its_imports_stand_on_top(tmp_path: Path) -> None:
    module = FunctionModule([described])
    imports = "import json\nimport collections.abc as abc\nfrom textwrap import dedent, indent as push"
    assert module.source.startswith(f"{imports}\n\n\ndef described(")
    assert run(module, "from functions import described; print(described('ab'))", tmp_path) == "> 2\n"


def test_decorated_function_stays_callable_with_its_name_and_docstring() -> None:
    @with_requirements(["x"])
    def kept(a: int) -> int:
        """Say it."""
        return a + 1

    assert kept(1) == 2
    assert (cast(Any, kept).__name__, kept.__doc__) == ("kept", "Say it.")


def test_packages_of_all_kinds_of_functions_count_once_in_order() -> None:
    text = FunctionWithRequirements.from_str("def f(): pass", ["requests", "tabulate"])
    made = FunctionWithRequirements.from_callable(add, ["numpy"])
    assert FunctionModule([described, text, made]).packages == ("tabulate", "pandas>=2", "requests", "numpy")


def test_from_callable_gives_the_function_to_blocks(tmp_path: Path) -> None:
    module = FunctionModule([FunctionWithRequirements.from_callable(add)])
    assert run(module, "from functions import add; print(add(2, b=5))", tmp_path) == "7\n"


def test_stacked_requirements_are_joined(tmp_path: Path) -> None:
    @needs(["b"], global_imports=["math"])
    @with_requirements(["a"])
    def half(x: float) -> float:
        return math.floor(x / 2)

    module = FunctionModule([half])
    assert module.packages == ("b", "a")
    assert "@" not in module.source
    assert run(module, "from functions import half; print(half(5))", tmp_path) == "2\n"


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
    code = "from functions import page; print(repr(page()))"
    assert run(module, code, tmp_path) == repr(page()) + "\n"


def test_function_nested_with_tabs_works(tmp_path: Path) -> None:
    written = imported("def outer():\n\tdef inner(x):\n\t\treturn x\n\treturn inner\n", tmp_path)
    module = FunctionModule([written.outer()])
    assert run(module, "from functions import inner; print(inner(3))", tmp_path) == "3\n"


def test_nested_function_may_call_itself(tmp_path: Path) -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    module = FunctionModule([factorial])
    assert run(module, "from functions import factorial; print(factorial(5))", tmp_path) == "120\n"


def test_async_function_works_and_its_stub_says_async(tmp_path: Path) -> None:
    module = FunctionModule([later])
    assert module.stubs() == 'async def later(a: int) -> int:\n    """Give `a`, later."""\n    ...'
    code = "import asyncio, functions; print(asyncio.run(functions.later(6)))"
    assert run(module, code, tmp_path) == "6\n"


def test_decorator_is_kept_when_the_module_has_it(tmp_path: Path) -> None:
    @with_requirements(global_imports=[ImportFromModule("functools", ["cache"])])
    @cache
    def drawn() -> list[int]:
        return []

    module = FunctionModule([drawn])
    code = "from functions import drawn; print(drawn() is drawn())"
    assert run(module, code, tmp_path) == "True\n"


MORE = """\
import functools
from cellblock.functions import with_requirements

def more(func):
    import functools
    return functools.wraps(func)(lambda *args: func(*args) + 100)

@more
@with_requirements(["pandas"])
def one(): return 1
"""


def test_decorator_above_with_requirements_keeps_the_requirements(tmp_path: Path) -> None:
    written = imported(MORE, tmp_path)
    module = FunctionModule([written.more, written.one])
    assert module.packages == ("pandas",)
    assert run(module, "from functions import one; print(one())", tmp_path) == "101\n"


def test_decorator_that_the_module_lacks_or_has_too_late_is_refused(tmp_path: Path) -> None:
    written = imported(MORE, tmp_path)
    assert "'more' of its decorator" in refusal(written.one)
    assert "give 'more' before it" in refusal(written.one, written.more)


def test_wrapper_that_the_source_does_not_show_is_refused() -> None:
    assert "is wrapped by a function" in refusal(passed_on(add))
    assert "is wrapped by a _lru_cache_wrapper" in refusal(cache(add))


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
def test_what_is_not_a_function_with_source_is_refused_with_the_reason(function: object, reason: str) -> None:
    assert reason in refusal(function)


def test_function_without_source_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("def made(): pass", names)
    assert "The source of 'made' cannot be read" in refusal(names["made"])


def test_function_whose_file_has_changed_is_refused(tmp_path: Path) -> None:
    written = imported("def first(): pass\n", tmp_path)
    Path(str(written.__file__)).write_text("def other(): pass\n")
    assert "is not its own" in refusal(written.first)


def test_needed_class_is_named() -> None:
    def uses() -> object:
        return [Helper() for _ in range(3)]

    assert "needs the class 'Helper'" in refusal(uses)


def test_needed_global_is_named_wherever_it_is_used() -> None:
    def in_default(a: int = LIMIT) -> int:
        return a

    def in_annotation(a: Helper) -> None: ...

    def in_nested_class() -> object:
        class Inner:
            size = 1
            limit = size + LIMIT

        return Inner

    assert "the name 'LIMIT'" in refusal(in_default)
    assert "the class 'Helper'" in refusal(in_annotation)
    assert refusal(in_nested_class).count("the name") == 1


def test_needed_module_is_named_with_its_real_name() -> None:
    def uses() -> object:
        return abc.Sized

    assert "the module 'collections.abc' as 'abc'" in refusal(uses)


def test_name_that_hides_a_builtin_is_not_taken_for_the_builtin() -> None:
    def uses() -> int:
        return open("x", 0)

    assert "the name 'open'" in refusal(uses)
    given = FunctionWithRequirements(uses, global_imports=[ImportFromModule("os", ["open"])])
    assert "from os import open" in FunctionModule([given]).source


def test_closure_is_refused_with_the_variable() -> None:
    count = 1

    def read() -> int:
        return count

    def written() -> None:
        nonlocal count
        count += 1

    assert "'count' of the function around it" in refusal(read)
    assert "nonlocal 'count'" in refusal(written)


def test_star_import_provides_unknown_names(tmp_path: Path) -> None:
    text = FunctionWithRequirements.from_str(
        "def root(): return sqrt(4)", global_imports=[ImportFromModule("math", ["*"])]
    )
    assert run(FunctionModule([text]), "from functions import root; print(root())", tmp_path) == "2.0\n"


def test_postponed_annotations_stay_postponed(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\n"
        "def shown(table: pandas.DataFrame, rows: int = 3) -> dict[str, polars.Series]:\n"
        "    return {}\n"
    )
    module = FunctionModule([described, imported(text, tmp_path).shown])
    assert module.source.startswith("from __future__ import annotations\nimport json\n")
    assert (
        "def shown(table: pandas.DataFrame, rows: int=3) -> dict[str, polars.Series]:\n    ..."
        in module.stubs()
    )
    assert run(module, "from functions import shown; print(shown(1))", tmp_path) == "{}\n"


def test_imports_keep_their_order_and_appear_once() -> None:
    first = FunctionWithRequirements.from_str("def a(): pass", global_imports=["zlib", "abc", "json"])
    second = FunctionWithRequirements.from_str("def b(): pass", global_imports=["json", "ast", "zlib"])
    assert FunctionModule([first, second]).source.split("\n\n\n")[0] == (
        "import zlib\nimport abc\nimport json\nimport ast"
    )


def test_one_name_for_two_things_is_refused() -> None:
    first = FunctionWithRequirements.from_str("def a(): pass", global_imports=[Alias("json", "x")])
    second = FunctionWithRequirements.from_str("def b(): pass", global_imports=[Alias("abc", "x")])
    third = FunctionWithRequirements.from_str("def x(): pass")
    assert "Two imports give 'x': json and abc" in refusal(first, second)
    assert "'x' is given twice" in refusal(first, third)
    assert "'x' is given twice" in refusal(third, third)


def test_submodules_of_one_package_do_not_clash() -> None:
    given = FunctionWithRequirements.from_str("def a(): return os.path", global_imports=["os.path", "os"])
    assert "import os.path\nimport os\n" in FunctionModule([given]).source


def test_module_that_would_import_itself_is_refused() -> None:
    given = FunctionWithRequirements.from_str("def a(): pass", global_imports=["json.decoder"])
    with pytest.raises(FunctionError, match="'json' would import itself"):
        FunctionModule([given], "json")


@pytest.mark.parametrize("item", ["os\nimport sys", "", "a b", ".x", 3, ImportFromModule("..x", ["y"])])
def test_global_import_that_is_not_one_absolute_import_is_refused(item: Any) -> None:
    with pytest.raises(FunctionError, match="global_imports"):
        with_requirements(global_imports=[item])


@pytest.mark.parametrize("packages", ["pandas", ["--index-url=x"], [""], ["a\n-r b"], [3], add])
def test_what_is_not_a_list_of_requirements_is_refused(packages: Any) -> None:
    with pytest.raises(FunctionError, match="python_packages"):
        with_requirements(packages)


def test_imported_names_must_be_a_list() -> None:
    with pytest.raises(FunctionError, match="must be a list of names"):
        ImportFromModule("math", "sqrt")
    assert ImportFromModule("math", ["sqrt"]) == ImportFromModule("math", ("sqrt",))


def test_text_is_never_run_when_it_is_given(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    given = FunctionWithRequirements.from_str(
        f"def f(a=__import__('pathlib').Path({str(marker)!r}).touch()): return 1"
    )
    module = FunctionModule([given])
    module.stubs()
    assert not marker.exists()
    run(module, "import functions", tmp_path)
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
    assert run(FunctionModule([given]), code, tmp_path) == "5\n"


@pytest.mark.parametrize(
    "text", ["", "x = 1", "import os\ndef f(): pass", "def f(): pass\ndef g(): pass", "class A: pass"]
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
    assert "needs the name 'pandas'" in refusal(given)


def test_text_function_cannot_be_called() -> None:
    with pytest.raises(NotImplementedError, match="^String based function with requirement objects are not"):
        FunctionWithRequirements.from_str("def f(): pass")()


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a.b", "class", "a b"])
def test_module_name_must_be_an_identifier(name: str) -> None:
    with pytest.raises(ValueError, match="^Module name must be a valid Python identifier$"):
        FunctionModule([], name)


def test_no_functions_give_an_empty_module() -> None:
    module = FunctionModule()
    assert (module.source, module.packages, module.names, module.stubs()) == ("", (), (), "")


def test_stub_shows_every_kind_of_parameter_and_the_dedented_docstring() -> None:
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
    assert (
        "module called `tools` by their function names.\n\nFor example, if there was a function called"
        in text
    )
    assert text.endswith(f"writing `from tools import foo`\n\n{module.stubs()}")
    assert module.format_for_prompt("$functions") == module.stubs()
    assert "$functions" in FUNCTION_PROMPT_TEMPLATE


def test_saved_functions_come_back_as_the_same_module(tmp_path: Path) -> None:
    text = "from __future__ import annotations\ndef shown(x: Unknown) -> None: ...\n"
    module = FunctionModule([described, add, imported(text, tmp_path).shown], "tools")
    again = FunctionModule.from_list(json.loads(json.dumps(module.to_list())), "tools")
    assert (again.source, again.packages, again.stubs()) == (module.source, module.packages, module.stubs())
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


@pytest.mark.parametrize("change", DAMAGES)
def test_damaged_saved_function_is_refused(change: dict[str, object]) -> None:
    saved = {**FunctionModule([add]).to_list()[0], **change}
    with pytest.raises(FunctionError):
        FunctionModule.from_list([saved])
