"""Fail the test that leaves an error, a task or a socket to the garbage collector.

asyncio logs an exception that nobody retrieved when the collector ends its task, at any moment.
Formatting the traceback then can break what is under way: while pytest parses a source file to show
a failure, it ends pytest itself ("AST constructor recursion depth mismatch", Python 3.11).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator

import pytest

_records: list[logging.LogRecord] = []


def pytest_configure() -> None:
    """Keep asyncio's errors, unformatted, for the end of the test."""
    logging.getLogger("asyncio").addFilter(_keep)


def _keep(record: logging.LogRecord) -> bool:
    if record.levelno < logging.ERROR:
        return True
    _records.append(record)
    return False


def pytest_collection_finish() -> None:
    """Leave what exists now out of all later collections, which makes them fast, and make few."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # each file ends with one


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Fail a test whose tasks ended with errors that nobody retrieved."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
    if _records:
        texts = [logging.Formatter().format(record) for record in _records]
        _records.clear()
        pytest.fail("asyncio logged an error:\n" + "\n".join(texts), pytrace=False)
