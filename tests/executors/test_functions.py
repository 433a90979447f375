"""Blocks can import the functions of an executor. Functions that cannot work are refused."""

import asyncio
import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from cellblock import (
    Alias,
    CodeBlock,
    CodeExecutor,
    CodeResult,
    FunctionError,
    FunctionWithRequirements,
    ImportFromModule,
    LocalCommandLineCodeExecutor,
    PackageError,
    SandboxCommandLineCodeExecutor,
    with_requirements,
)
from cellblock.functions.module import Function

P = ParamSpec("P")
R = TypeVar("R")


@pytest.fixture(
    params=[SandboxCommandLineCodeExecutor, LocalCommandLineCodeExecutor], ids=["sandbox", "local"]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., CodeExecutor]:
    def make(functions: Sequence[Function], **parameters: Any) -> CodeExecutor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return request.param(functions=functions, work_dir=tmp_path, **parameters)

    return make


def run(executor: CodeExecutor, *codes: str) -> CodeResult:
    async def main() -> CodeResult:
        async with executor:
            return await executor.execute_code_blocks([CodeBlock(code, "python") for code in codes])

    return asyncio.run(main())


def add_two_numbers(a: int, b: int) -> int:
    """Add two numbers together."""
    return a + b


@with_requirements(
    global_imports=[
        "math",
        Alias("statistics", "stats"),
        ImportFromModule("json", ["dumps", "loads"]),
    ]
)
def describe(values: list[float]) -> str:
    """Return the mean and its square root."""
    mean = stats.mean(values)  # type: ignore[name-defined]  # noqa: F821
    return dumps([mean, math.sqrt(mean)])  # type: ignore[name-defined]  # noqa: F821


async def later(text: str) -> str:
    """Return the text from a coroutine."""
    return text


@functools.cache
@functools.lru_cache
def decorated(a: int) -> int:
    return a * 2


def nested(a: int) -> int:
    def inner(b: int) -> int:
        return b + 1

    return inner(a)


SHOUT = 'def shout(text: str) -> str:\n    """Say it louder."""\n    return text.upper() + "é"\n'
TWICE = "def twice(a: int) -> int:\n    return add_two_numbers(a, a)\n"
FUNCTIONS = [
    add_two_numbers,
    describe,
    later,
    nested,
    FunctionWithRequirements.from_callable(decorated, global_imports=["functools"]),
    FunctionWithRequirements.from_str(SHOUT),
    FunctionWithRequirements.from_str(TWICE),
]
# Calls of the functions, and what they return.
CALLS = {
    "tools.add_two_numbers(1, 2)": 3,
    "tools.describe([1, 7])": "[4, 2.0]",  # with its global imports
    "asyncio.run(tools.later('x'))": "x",
    "tools.nested(1)": 2,
    "(tools.decorated(2), tools.decorated.cache_info().misses)": (4, 1),
    "tools.shout('x')": "Xé",
    "tools.twice(2)": 4,
}


def test_every_block_can_import_functions_from_a_custom_module(
    make: Callable[..., CodeExecutor],
) -> None:
    code = f"import asyncio, tools\nprint([eval(call) for call in {[*CALLS]}])"
    result = run(make(FUNCTIONS, functions_module="tools"), code, code)
    assert (result.exit_code, result.output) == (0, f"{[*CALLS.values()]}\n" * 2)


def test_closures_and_lambdas_are_refused_when_the_executor_is_created(
    make: Callable[..., CodeExecutor],
) -> None:
    outer = 3

    def closure() -> int:
        return outer

    with pytest.raises(FunctionError, match="'outer' of the function around it"):
        make([closure])
    with pytest.raises(ValueError, match="lambda"):
        make([lambda: 1])


async def test_after_functions_failed_to_load_every_use_raises(
    make: Callable[..., CodeExecutor],
) -> None:
    for arguments, imports, words in (
        ("", ["no_such_module_here"], "No module named 'no_such_module_here'"),
        ("a=1 / 0", [], "ZeroDivisionError"),
    ):
        text = f"def f({arguments}):\n    return 1\n"
        executor = make([FunctionWithRequirements.from_str(text, global_imports=imports)])
        for _ in range(2):
            with pytest.raises(FunctionError, match=f"(?s)^Functions failed to load: .*{words}"):
                await executor.execute_code_blocks([CodeBlock("print('never')", "python")])
        await executor.stop()


async def test_restart_restores_functions_that_a_block_overwrote(
    make: Callable[..., CodeExecutor],
) -> None:
    async with make([add_two_numbers]) as executor:
        await executor.execute_code_blocks([CodeBlock("echo 'spoilt =' > functions.py", "sh")])
        await executor.restart()
        code = "from functions import add_two_numbers\nprint(add_two_numbers(1, 2))"
        assert (await executor.execute_code_blocks([CodeBlock(code, "python")])).output == "3\n"


def test_the_prompt_describes_the_functions(make: Callable[..., CodeExecutor]) -> None:
    executor: Any = make([add_two_numbers], functions_module="tools")
    prompt = executor.format_functions_for_prompt()
    assert "module called `tools`" in prompt
    assert (
        'def add_two_numbers(a: int, b: int) -> int:\n    """Add two numbers together."""\n    ...'
        in prompt
    )


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_load_data_from_autogens_documentation_works(make: Callable[..., CodeExecutor]) -> None:
    pandas: Any = pytest.importorskip(
        "pandas", reason="the function's annotation is evaluated here as well"
    )

    @with_requirements(python_packages=["pandas"], global_imports=["pandas"])
    def load_data() -> pandas.DataFrame:  # pyright: ignore - no stubs
        """Load some sample data.

        Returns:
            pandas.DataFrame: A DataFrame with the columns name(str), location(str), age(int)
        """
        data = {
            "name": ["John", "Anna", "Peter", "Linda"],
            "location": ["New York", "Paris", "Berlin", "London"],
            "age": [24, 13, 53, 33],
        }
        return pandas.DataFrame(data)

    code = (
        "from functions import load_data\nimport pandas\ndata = load_data()\nprint(data['name'][0])"
    )
    assert run(make([load_data]), code).output == "John\n"


@pytest.mark.network
@pytest.mark.timeout(120)
def test_packages_of_a_function_from_source_text_are_installed(
    make: Callable[..., CodeExecutor],
) -> None:
    text = "def name() -> str:\n    return six.__name__\n"
    function = FunctionWithRequirements.from_str(text, ["six"], ["six"])
    assert run(make([function]), "from functions import name\nprint(name())").output == "six\n"


@pytest.mark.network
@pytest.mark.timeout(120)
def test_a_package_that_does_not_exist_is_named(make: Callable[..., CodeExecutor]) -> None:
    function = FunctionWithRequirements.from_callable(
        add_two_numbers, ["cellblock-has-no-such-package"]
    )
    with pytest.raises(PackageError, match="cellblock-has-no-such-package"):
        run(make([function]), "print('never')")
