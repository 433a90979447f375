"""run_many: order, backpressure, isolation, and what becomes of failures of our own."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import itertools
import os
import signal
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    sync,
)
from cellblock.batch import JudgeLimits, Program, Summary, Verdict, run_many
from cellblock.runtime.linux.process_tree import children
from tests.batch.runs import judge_all, noting, ran, sandbox_with, waiting, with_generator
from tests.executors.session.live_session import skip_without_sandbox

LOOK_AHEAD = 64


def printing(count: int) -> Iterator[Program]:
    return (Program(id=str(number), code=f"print({number})") for number in range(count))


def first_waits(folder: Path, others: int) -> Iterator[Program]:
    """Yield a program that waits for the others, and these. The last one lets it go on."""
    yield waiting("0", folder / "go")
    for number in range(1, others + 1):
        last = f"open({str(folder / 'go')!r}, 'w')" if number == others else ""
        yield Program(id=str(number), code=last)


def test_verdicts_have_the_order_of_the_programs(tmp_path: Path) -> None:
    verdicts = judge_all(first_waits(tmp_path, 5), executor=sandbox_with(tmp_path), concurrency=2)
    assert [(verdict.id, verdict.passed) for verdict in verdicts] == [
        (str(number), True) for number in range(6)
    ]


def test_verdicts_come_as_they_are_known_without_order(tmp_path: Path) -> None:
    verdicts = judge_all(
        first_waits(tmp_path, 5), executor=sandbox_with(tmp_path), concurrency=2, ordered=False
    )
    assert verdicts[-1].id == "0" or verdicts[-2].id == "0"
    assert sorted(verdict.id for verdict in verdicts) == list("012345")


@pytest.mark.parametrize(("is_ordered", "bound"), [(True, LOOK_AHEAD), (False, 4)])
def test_endless_programs_are_read_only_as_fast_as_they_run(
    tmp_path: Path, is_ordered: bool, bound: int
) -> None:
    yielded, ahead = 0, list[int]()

    def programs() -> Iterator[Program]:
        yield waiting("0", tmp_path / "go")
        for number in itertools.count(1):
            ahead.append(number + 1 - yielded)
            if number == LOOK_AHEAD - 1:
                (tmp_path / "go").touch()
            yield Program(id=str(number), code="")

    async def use(verdicts: AsyncGenerator[Verdict, None]) -> None:
        nonlocal yielded
        async for _ in verdicts:
            yielded += 1
            if yielded == 2 * LOOK_AHEAD:
                break
        await verdicts.aclose()

    options = {"concurrency": 2, "ordered": is_ordered}
    with_generator(programs(), use, executor=sandbox_with(tmp_path), **options)
    assert max(ahead) == bound


def test_one_program_waits_for_each_that_runs(tmp_path: Path) -> None:
    ended_before = list[list[str]]()

    def programs() -> Iterator[Program]:
        for number in range(8):
            ended_before.append(ran(tmp_path))
            if number == 3:
                (tmp_path / "go").touch()
            wait, note = waiting("", tmp_path / "go"), noting(str(number), tmp_path)
            yield Program(id=str(number), code=f"{wait.code}\n{note.code}")

    judge_all(programs(), executor=sandbox_with(tmp_path), concurrency=2)
    assert ended_before[:4] == [[]] * 4
    assert all(len(ended) >= taken - 4 for taken, ended in enumerate(ended_before, start=1))


def test_asynchronous_programs_may_depend_on_verdicts() -> None:
    seen = asyncio.Queue[Verdict]()

    async def programs() -> AsyncIterator[Program]:
        yield Program(id="a", code="print(6 * 7)")
        yield Program(id="b", code=f"print({(await seen.get()).output.strip()} + 1)")

    async def use(verdicts: AsyncGenerator[Verdict, None]) -> None:
        outputs = list[str]()
        async for verdict in verdicts:
            outputs.append(verdict.output)
            seen.put_nowait(verdict)
        assert outputs == ["42\n", "43\n"]

    with_generator(programs(), use)


def test_program_sees_nothing_of_earlier_ones() -> None:
    leave = """
import os, site
for folder in (".", os.path.expanduser("~"), "/tmp", site.getsitepackages()[0]):
    open(folder + "/left.py", "w").close()
os.makedirs("deep/er")
"""
    look = """
import os, site
for folder in (os.path.expanduser("~"), "/tmp", site.getsitepackages()[0], "."):
    print(sorted(name for name in os.listdir(folder) if not name.startswith("tmp_code_")))
"""
    programs = [
        Program(id="first", code=look),
        Program(id="leaves", code=leave),
        Program(id="looks", code=look),
        Program(id="leaves a file", code="open('left.py', 'w').close()"),
        Program(id="looks again", code=look),
    ]
    verdicts = judge_all(programs, concurrency=1)
    assert all(verdict.passed for verdict in verdicts)
    assert "left.py" not in verdicts[0].output
    assert {verdicts[number].output for number in (0, 2, 4)} == {verdicts[0].output}


def test_limits_end_programs() -> None:
    programs = [
        Program(id="cpu", code="while True: pass"),
        Program(id="wall", code="import time; time.sleep(600)"),
        Program(id="memory", code="x = 'x' * (1 << 30)"),
    ]
    limits = JudgeLimits(cpu_seconds=0.2, wall_seconds=3, memory_bytes=100 << 20)
    verdicts = judge_all(programs, limits=limits)
    assert [(verdict.outcome, verdict.limit) for verdict in verdicts] == [
        ("timeout", "cpu_seconds"),
        ("timeout", "wall_seconds"),
        ("limit", "memory_bytes"),
    ]


def test_server_that_is_killed_costs_no_verdict(tmp_path: Path) -> None:
    before = set(children(os.getpid()))

    async def programs() -> AsyncIterator[Program]:
        yield waiting("0", tmp_path / "go")
        yield Program(id="1", code=f"open({str(tmp_path / 'begun')!r}, 'w')")
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        for server in set(children(os.getpid())) - before:
            os.kill(server, signal.SIGKILL)
        (tmp_path / "go").touch()
        for number in range(2, 6):
            yield Program(id=str(number), code=f"import sys; sys.exit({number % 2})")

    summaries = list[Summary]()
    verdicts = judge_all(
        programs(),
        executor=sandbox_with(tmp_path),  # no other executor has its server
        concurrency=2,
        on_progress=summaries.append,
    )
    assert [(verdict.id, verdict.exit_code) for verdict in verdicts] == [
        (str(number), number % 2 if number > 1 else 0) for number in range(6)
    ]
    assert verdicts[0].attempts == 2
    assert summaries[-1].retries >= 1
    assert summaries[-1].outcomes == {"passed": 4, "failed": 2}


def test_what_cannot_be_judged_has_no_verdict() -> None:
    # A program without protection can end all that is between it and this process.
    code = f"""
import os, signal
victims, parent = [], os.getppid()
while parent != {os.getpid()}:
    victims.append(parent)
    parent = int(open(f"/proc/{{parent}}/stat").read().rpartition(")")[2].split()[1])
for victim in victims[::-1]:
    os.kill(victim, signal.SIGKILL)
"""
    programs = [Program(id=str(number), code=code) for number in range(11)]
    with pytest.warns(UserWarning, match="recommended to use Sandbox"):
        options: dict[str, Any] = {"executor": LocalCommandLineCodeExecutor(), "concurrency": 1}
    first, second = judge_all([programs[0], Program(id="next", code="")], retries=1, **options)
    assert (first.outcome, first.attempts) == ("not_judged", 2)
    assert first.message.startswith("BackendLost: ")
    assert second.passed
    with pytest.raises(BackendError, match="10 programs in a row could not be judged"):
        judge_all(programs, retries=0, **options)


def test_closing_early_leaves_no_process_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "shared").mkdir()
    lock = tmp_path / "shared" / "lock"
    hold = f"import fcntl, time; file = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_SH)"
    holds = f"{hold}; print(1); open({str(lock)!r} + '.held', 'w').close(); time.sleep(600)"

    async def use(verdicts: AsyncGenerator[Verdict, None]) -> None:
        await anext(verdicts)
        while not Path(f"{lock}.held").exists():
            await asyncio.sleep(0.01)
        await verdicts.aclose()
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not list(tmp_path.glob("cellblock-work-*"))

    programs = [Program(id=str(number), code=holds if number else "") for number in range(9)]
    with_generator(programs, use, executor=sandbox_with(tmp_path / "shared"), concurrency=2)


def test_synchronous_batch_reads_programs_in_the_calling_thread() -> None:
    threads = set[int]()

    def programs() -> Iterator[Program]:
        for program in printing(10):
            threads.add(threading.get_ident())
            yield program

    skip_without_sandbox()
    verdicts = list(sync.run_many(programs(), concurrency=2))
    assert [verdict.output for verdict in verdicts] == [f"{number}\n" for number in range(10)]
    assert threads == {threading.get_ident()}


def test_synchronous_batch_has_the_same_parameters() -> None:
    ours, theirs = (inspect.signature(each).parameters for each in (sync.run_many, run_many))
    assert [(each.name, each.default) for each in ours.values()] == [
        (each.name, each.default) for each in theirs.values()
    ]


def test_error_of_the_programs_ends_a_synchronous_batch() -> None:
    def programs() -> Iterator[Program]:
        yield from printing(3)
        raise KeyError("lost")

    skip_without_sandbox()
    with pytest.raises(KeyError, match="lost"):
        list(sync.run_many(programs()))


WRONG_ARGUMENTS: list[tuple[Any, dict[str, Any], str]] = [
    ([Program(id=name, code="") for name in "aba"], {}, "1 and 3 have the same ID, 'a'"),
    (["print(1)"], {}, "Program 1 is a str"),
    (3, {}, "an iterable of programs, not a int"),
    ([], {"concurrency": 0}, "concurrency must be a whole number of at least 1"),
    ([], {"retries": -1}, "retries must be a whole number of at least 0"),
]


def test_wrong_arguments_are_refused() -> None:
    for programs, options, message in WRONG_ARGUMENTS:
        with pytest.raises(ValueError, match=message):
            judge_all(programs, **options)


def test_executor_with_a_work_folder_is_refused(tmp_path: Path) -> None:
    executor = SandboxCommandLineCodeExecutor(work_dir=tmp_path)
    with pytest.raises(ValueError, match="without work_dir"):
        run_many([], executor=executor)


def test_executor_of_sessions_is_refused() -> None:
    with pytest.raises(ValueError, match="fresh processes, not in a SandboxSessionCodeExecutor"):
        run_many([], executor=SandboxSessionCodeExecutor())
