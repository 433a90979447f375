"""A test has a price: the CPU time that it and the processes that it starts use.

It does not depend on what else the machine does, as the time of a clock would. A test of the
default tier that uses more than 3 s of CPU fails. `--all` ends with a list of what costs most.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest

MOST_SECONDS = 3.0
_REFERENCE_SECONDS = 0.11  # what `_measure_speed` takes where MOST_SECONDS holds as it is
_CHEAP_SECONDS = 0.5  # a test marked slow that uses less need not be
_LISTED = 30
_TICKS = os.sysconf("SC_CLK_TCK")


def used_seconds() -> float:
    """Return the CPU time of this process, its descendants, and those that it has waited for.

    A descendant that nobody has waited for, or whose parent has ended, is lost when it ends.
    """
    total = sum(os.times()[:4])
    for pid in _descendants():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        total += sum(map(int, fields[11:15])) / _TICKS  # see proc(5): utime to cstime
    return total


def _descendants() -> Iterator[str]:
    parents = ["self"]
    while parents:
        folder = f"/proc/{parents.pop()}/task"
        try:
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/children") as file:
                    children = file.read().split()
                yield from children
                parents += children
        except OSError:  # it has ended, or this kernel has no such file
            continue


def _measure_speed() -> float:
    """Return how many times longer this machine takes at present than the reference, at least 1."""
    start, total = time.process_time(), 0
    for number in range(2_000_000):
        total += number
    ratio = (time.process_time() - start) / _REFERENCE_SECONDS
    # Processors share caches, and often cores: what runs beside it costs more than this loop shows.
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    return max(1.0, ratio) * (1.5 if is_busy else 1.0)


class _Meter:
    """Measure the test that runs, without the fixtures that it shares with other tests."""

    def __init__(self) -> None:
        self._start = self._shared = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Count what fixtures of classes, modules and sessions use apart."""
        if fixturedef.scope == "function":
            return (yield)
        start = used_seconds()
        try:
            return (yield)
        finally:
            self._shared += used_seconds() - start

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        """Begin to count."""
        self._start, self._shared = used_seconds(), 0.0
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Fail a test of the default tier that has used too much."""
        yield
        price = used_seconds() - self._start - self._shared
        if price > MOST_SECONDS and item.get_closest_marker("slow") is None:
            speed = _measure_speed()
            if price > MOST_SECONDS * speed:
                pytest.fail(
                    f"This test used {price:.1f} s of CPU, with the processes that it started. In "
                    f"the default tier {MOST_SECONDS * speed:.1f} s are allowed on this machine. "
                    "Make the test cheaper, or mark it slow.",
                    pytrace=False,
                )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Report what the test used, and the fixtures that were set up or torn down for it."""
        yield
        used = max(0.0, used_seconds() - self._start)  # negative: what was used before is lost
        item.user_properties.append(("cpu_seconds", used))
        if item.get_closest_marker("slow"):
            item.user_properties.append(("slow", True))


class _Totals:
    """Add up what tests used, where all reports arrive."""

    def __init__(self, *, listed: bool) -> None:
        self._tests = Counter[str]()
        self._slow = set[str]()
        self._listed = listed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what a test used."""
        found = dict(report.user_properties) if report.when == "teardown" else {}
        if "cpu_seconds" in found:
            self._tests[report.nodeid] = found["cpu_seconds"]  # pyright: ignore[reportArgumentType]
        if "slow" in found:
            self._slow.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sum; with `--all`, also the most expensive tests and files."""
        write = terminalreporter.write_line
        if self._listed:
            files = Counter[str]()
            for name, seconds in self._tests.items():
                files[name.partition("::")[0]] += seconds  # pyright: ignore[reportArgumentType]
            for kind, counter in ("file", files), ("test", self._tests):
                terminalreporter.section(f"CPU seconds per {kind}")
                for name, seconds in counter.most_common(_LISTED):
                    write(f"{seconds:7.1f} {name}")
            terminalreporter.section(f"marked slow, but used less than {_CHEAP_SECONDS:g} s")
            for name in sorted(self._slow):
                if self._tests[name] < _CHEAP_SECONDS:
                    write(name)
        write(f"The tests used {sum(self._tests.values()):.0f} s of CPU.")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and add up where their results are put together."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Meter(), "cellblock-meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Totals(listed=config.option.all), "cellblock-prices")
