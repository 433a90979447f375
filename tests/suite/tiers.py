"""The two tiers of tests, and the marks that tests have.

`scripts/test` runs the default tier: all tests but those marked `slow` or `exhaustive`. Everything
runs with `--all`, and everything below the paths that are given.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet

MARKS = {
    "slow": "only with --all: it uses more than 3 s of CPU, at which a test of the default tier "
    "fails, or about 1 s for a detail, or much in processes of a container engine, which are not "
    "measured",
    "exhaustive": "only with --all: a further case of a function that the default tier tests too",
    "depends_on_user": "its verdict can depend on who runs it, so CI runs it as a plain user too",
    "engine": "needs a container engine",
    "kernel": "starts a Jupyter kernel, a Jupyter server or JupyterLab",
    "autogen": "needs AutoGen's packages",
    "docs": "runs the pages of docs/ or builds the site",
    "pythons": "needs other versions of Python, or makes virtual environments",
    "postgres": "starts PostgreSQL",
    "network": "needs the package registry",
}
_ONLY_WITH_ALL = {"slow", "exhaustive"}
_WAITS = {"engine", "kernel", "network", "postgres"}  # start first: they wait most of the time


def exhaustive(cases: Iterable[Any], *, keep: int | Callable[[Any], bool] = 1) -> list[Any]:
    """Return the cases of a parametrised test, all but some of them marked `exhaustive`.

    `keep` says which stay in the default tier: the first so many, or those for which it is true. A
    tuple has the values of several parameters, as in `parametrize`.
    """
    result: list[Any] = []
    for number, case in enumerate(cases):
        if keep(case) if callable(keep) else number < keep:
            result.append(case)
        elif isinstance(case, ParameterSet):
            result.append(case._replace(marks=(*case.marks, pytest.mark.exhaustive)))
        else:
            values = cast("tuple[Any, ...]", case) if isinstance(case, tuple) else (case,)
            result.append(pytest.param(*values, marks=pytest.mark.exhaustive))
    return result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`."""
    parser.addoption(
        "--all",
        action="store_true",
        help="run the tests marked slow or exhaustive too, as when paths are given",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, and choose the tier."""
    for name, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    given = config.args_source is pytest.Config.ArgsSource.ARGS
    config.option.tier = "paths" if given else "all" if config.option.all else "default"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Choose the tests of the tier. Put first what waits longest, for xdist's workers."""
    if config.option.tier != "paths":
        _refuse_functions_without_a_default_case(items)
    yield
    if config.option.tier == "default":
        left_out = [item for item in items if _has(item, _ONLY_WITH_ALL)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _has(item, _ONLY_WITH_ALL)]
    if hasattr(config, "workerinput"):
        count = Counter(item.path for item in items)
        items.sort(key=lambda item: (not _has(item, _WAITS), -count[item.path]))


def _refuse_functions_without_a_default_case(items: list[pytest.Item]) -> None:
    functions = {_function(item) for item in items if not _has(item, {"exhaustive"})}
    lost = sorted({_function(item) for item in items} - functions)
    if lost:
        text = (
            "Each case of these tests is marked exhaustive, so the default tier has none. Leave one"
            f" case unmarked, or mark the test slow if it uses that much CPU: {', '.join(lost)}"
        )
        print(text, file=sys.__stderr__)  # what a worker of xdist raises here is not shown
        raise pytest.UsageError(text)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _has(item: pytest.Item, marks: set[str]) -> bool:
    return any(mark.name in marks for mark in item.iter_markers())
