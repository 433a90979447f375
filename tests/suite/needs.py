"""Marks that name what a test needs, and `--quick`, which leaves out all tests that have one."""

from __future__ import annotations

from collections import Counter

import pytest

NEEDS = {
    "engine": "needs a container engine",
    "kernel": "starts a Jupyter kernel, a Jupyter server or JupyterLab",
    "autogen": "needs AutoGen's packages",
    "docs": "runs the pages of docs/ or builds the site",
    "pythons": "needs other versions of Python, or makes virtual environments",
    "postgres": "starts PostgreSQL",
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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `--quick` leaves out. Put first what takes longest, for xdist's workers."""
    if config.getoption("--quick"):
        left_out = [item for item in items if _has_need(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _has_need(item)]
    if hasattr(config, "workerinput"):
        count = Counter(item.path for item in items)
        items.sort(key=lambda item: (not _has_need(item), -count[item.path]))


def _has_need(item: pytest.Item) -> bool:
    return any(mark.name in NEEDS for mark in item.iter_markers())
