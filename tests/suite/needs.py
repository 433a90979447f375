"""Marks that name what a test needs, and `--quick`, which leaves out all tests that have one."""

from __future__ import annotations

import pytest

NEEDS = {
    "engine": "needs a container engine",
    "kernel": "starts a Jupyter kernel, a Jupyter server or JupyterLab",
    "autogen": "needs AutoGen's packages",
    "docs": "runs the pages of docs/ or builds the site",
    "pythons": "needs other versions of Python, or makes virtual environments",
    "network": "needs the package registry",
    "slow": "takes more than about five seconds",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"leave out the tests with one of the marks {', '.join(NEEDS)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    for name, meaning in NEEDS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `--quick` leaves out."""
    if not config.getoption("--quick"):
        return
    chosen = [item for item in items if NEEDS.keys().isdisjoint(_marks(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}
