"""The contract as tests: which checks run in which tier, and executors that they share.

Starting a container or a kernel takes most of the time of a check.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cellblock.executors.base import CodeExecutor
from cellblock.testing.conformance import CHECKS, CheckSkipped, ConformanceTarget, checks_for
from tests.suite.tiers import exhaustive

_TIMEOUT = 60.0
# The other modules of checks start executors, and wait for time limits and the ends of processes.
CHEAP = {"output", "requests", "sessions"}


def contract_cases(
    target: ConformanceTarget,
    differences: Mapping[str, str],
    *,
    left_out: Collection[str] = (),
    slow: Collection[str] = (),
    raises: type[Exception] | tuple[type[Exception], ...] = AssertionError,
    modules: Collection[str] | None = CHEAP,
) -> list[Any]:
    """Return the checks for `target` as cases of a test, with a reason for each that must fail.

    The default tier has those of `modules`, None: all, as for the sandbox.
    """

    def cases() -> Iterator[Any]:
        for name in checks_for(target):
            reason = differences.get(name)
            marks = [pytest.mark.slow] if name in slow else []
            if reason:
                marks.append(pytest.mark.xfail(strict=True, raises=raises, reason=reason))
            if name not in left_out:
                yield pytest.param(name, marks=marks, id=name)

    def stays(case: Any) -> bool:
        return modules is None or CHECKS[case.values[0]].__module__.rpartition(".")[2] in modules

    unknown = {*differences, *left_out, *slow} - checks_for(target).keys()
    assert not unknown, f"There are no such checks: {unknown}"
    return exhaustive(cases(), keep=stays)


@contextlib.contextmanager
def skipping() -> Generator[None]:
    """Skip the test if its check says that it cannot run here."""
    try:
        yield
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@dataclass(frozen=True)
class SharedExecutorTarget(ConformanceTarget):
    """Yield the shared executor, in an empty work folder, to checks that pass no options.

    A check of the life of an executor, one that passes options, and the second executor of a check
    get an executor of their own. An executor on which a check failed is not used again.
    """

    _idle: list[tuple[CodeExecutor, Path]] = field(default_factory=list[tuple[CodeExecutor, Path]])

    async def run_check(self, name: str) -> None:
        """Run one check, and raise as it does."""
        has_own = CHECKS[name].__module__.endswith(".lifecycle")
        await CHECKS[name](ConformanceTarget(self.factory, self.options) if has_own else self)

    @contextlib.asynccontextmanager
    async def executor(self, **options: Any) -> AsyncGenerator[tuple[CodeExecutor, Path]]:
        """See `ConformanceTarget`."""
        if options not in ({}, {"timeout": _TIMEOUT}):
            async with super().executor(**options) as own:
                yield own
            return
        shared = self._idle.pop() if self._idle else await self._start()
        try:
            yield shared
            _empty(shared[1])
        except BaseException:
            await _stop(*shared)
            raise
        if self._idle:
            await _stop(*shared)
        else:
            self._idle.append(shared)

    async def _start(self) -> tuple[CodeExecutor, Path]:
        folder = tempfile.mkdtemp(prefix="cellblock-check-")
        executor = self.create(work_dir=folder, timeout=_TIMEOUT)
        await executor.start()
        return executor, Path(folder)

    async def stop(self) -> None:
        """Stop the shared executor."""
        while self._idle:
            await _stop(*self._idle.pop())


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


async def _stop(executor: CodeExecutor, folder: Path) -> None:
    await executor.stop()
    shutil.rmtree(folder, ignore_errors=True)
