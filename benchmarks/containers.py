"""Blocks in a container that runs, and its start and stop, beside what the engine's own command line takes for the same."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import subprocess
from collections.abc import Callable, Generator
from typing import Any

import cellblock
from benchmarks.callers import crowd
from benchmarks.figures import Bound, Figure, alone, beside
from benchmarks.measure import HI, Effort, NotMeasured, interleave, timed, times
from benchmarks.session_speed import CELL, in_turn, run_live, seconds_of
from benchmarks.single import PANDAS
from cellblock import CodeBlock
from cellblock.sync import DockerCommandLineCodeExecutor

_IMAGE = "python:3-slim"
_CALLERS = 8
_BATCH = 20
# A shell that waits for a child and will not be asked to go: it is what peers take ten seconds to stop.
_STUBBORN = "trap '' TERM; sleep 60"


def docker(*arguments: str) -> str:
    """Run the engine's own command line; give what it prints."""
    if shutil.which("docker") is None:
        raise NotMeasured("there is no `docker` command to compare with.")
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def exec_plain(container: str, code: str) -> str:
    """Run `code` by `docker exec`."""
    return docker("exec", container, "python3", "-c", code)


def run_block(executor: DockerCommandLineCodeExecutor, code: str) -> str:
    """Run `code` as a block."""
    return executor.execute_code_blocks([CodeBlock(code, "python")]).check().output


def _image(effort: Effort) -> str:
    return effort.texts.get("image") or _IMAGE


@contextlib.contextmanager
def _started(code: str, **options: Any) -> Generator[tuple[DockerCommandLineCodeExecutor, str]]:
    """Give an executor and its container, in which `code` was seen to give the same both ways."""
    with DockerCommandLineCodeExecutor(**options) as executor:
        container = str(executor.container)
        if (ours := run_block(executor, code)) != (theirs := exec_plain(container, code)):
            raise RuntimeError(f"A block gives {ours!r} where docker exec gives {theirs!r}.")
        yield executor, container


def back_to_back(effort: Effort) -> list[Figure]:
    """Run a block again at once: the mean of a batch, beside one `docker exec`."""
    with _started(HI, image=_image(effort)) as (executor, container):
        values = interleave(
            effort.pick(20, 2),
            {
                "ours": lambda: statistics.mean(times(lambda: run_block(executor, HI), _BATCH)),
                "theirs": lambda: timed(lambda: exec_plain(container, HI)),
            },
        )
    bound = Bound("at most", 0.12)
    return [
        beside(
            "print('hi') per block, started container", *_both(values), bound, unit="ms", scale=1000
        )
    ]


def preloaded(effort: Effort) -> list[Figure]:
    """Use pandas, preloaded, beside a `docker exec` that imports it."""
    names = ("numpy", "pandas")
    options = {"image": _image(effort), "packages": names, "preload": names}
    with _started(PANDAS, **options) as (executor, container):
        values = interleave(
            effort.pick(12, 2),
            {
                "ours": lambda: statistics.median(
                    times(lambda: run_block(executor, PANDAS), 5, pause=0.02)
                ),
                "theirs": lambda: timed(lambda: exec_plain(container, PANDAS)),
            },
        )
    bound = Bound("at most", 0.03)
    return [beside("pandas groupby, preloaded", *_both(values), bound, unit="ms", scale=1000)]


def eight(effort: Effort) -> list[Figure]:
    """Compare 8 callers of one executor with 8 that call `docker exec`, in the same container."""
    seconds = effort.pick(3, 1)
    with _started(HI, image=_image(effort)) as (executor, container):
        wrong: list[int] = []

        def rate(ask: Callable[[str], str]) -> float:
            found = crowd(_CALLERS, seconds, lambda _, code: ask(code))
            wrong.append(found.wrong)
            return found.rate

        values = interleave(
            effort.pick(5, 1),
            {
                "ours": lambda: rate(lambda code: run_block(executor, code)),
                "theirs": lambda: rate(lambda code: exec_plain(container, code)),
            },
        )
    note = f"results of somebody else: {sum(wrong)}"
    return [
        beside("8 callers at once", *_both(values), Bound("at least", 8), unit="runs/s", note=note)
    ]


def session_cell(effort: Effort) -> list[Figure]:
    """Compare a trivial cell of a session in a container with one in the sandbox."""
    kind: Any = getattr(cellblock, "DockerSessionCodeExecutor", None)
    if kind is None:
        raise NotMeasured("there is no DockerSessionCodeExecutor yet.")
    values = asyncio.run(_session_cells(kind, effort))
    more = [ours - theirs for ours, theirs in zip(values["ours"], values["theirs"], strict=True)]
    note = f"{statistics.median(values['ours']) * 1000:.2f} ms, beside {statistics.median(values['theirs']) * 1000:.2f} ms"
    measure = "trivial session cell, more than in the sandbox"
    return [alone(measure, more, Bound("at most", 3), unit="ms", scale=1000, note=note)]


async def _session_cells(kind: Any, effort: Effort) -> dict[str, list[float]]:
    async def batch(session: Any) -> float:
        async def cells() -> None:
            for _ in range(_BATCH):
                await run_live(session, CELL)

        return await seconds_of(cells()) / _BATCH

    async with (
        kind(_image(effort), packages=["ipython"]) as ours,
        cellblock.SandboxSessionCodeExecutor() as theirs,
    ):
        return await in_turn(
            effort.pick(20, 2), ours=lambda: batch(ours), theirs=lambda: batch(theirs)
        )


def starting(effort: Effort) -> list[Figure]:
    """Compare `start()` with `docker run -d` and a first `docker exec`."""
    image = _image(effort)
    values = interleave(
        effort.pick(12, 2), {"ours": lambda: _start(image), "theirs": lambda: _run_and_exec(image)}
    )
    measure, bound = "start(), beside docker run -d and a first exec", Bound("at most", 1.3)
    return [beside(measure, *_both(values), bound, unit="ms", scale=1000)]


def _start(image: str) -> float:
    executor = DockerCommandLineCodeExecutor(image)
    try:
        return timed(executor.start)
    finally:
        executor.stop()


def _run_and_exec(image: str) -> float:
    started: list[str] = []

    def first_answer() -> None:
        options = ("--detach", "--interactive", "--network", "none", "--entrypoint", "/bin/sh")
        started.append(docker("run", *options, image, "-c", "read _").strip())
        exec_plain(started[0], HI)

    try:
        return timed(first_answer)
    finally:
        for container in started:
            docker("rm", "--force", container)


def stopping(effort: Effort) -> list[Figure]:
    """Time `stop()` of an executor in which a shell runs that ignores SIGTERM."""
    values = [asyncio.run(_stop(_image(effort))) for _ in range(effort.pick(8, 2))]
    return [
        alone(
            "stop(), while a shell ignores SIGTERM",
            values,
            Bound("at most", 1000),
            unit="ms",
            scale=1000,
        )
    ]


async def _stop(image: str) -> float:
    executor = cellblock.DockerCommandLineCodeExecutor(image)
    await executor.start()
    running = asyncio.ensure_future(executor.execute_code_blocks([CodeBlock(_STUBBORN, "sh")]))
    await asyncio.sleep(0.3)
    try:
        return await seconds_of(executor.stop())
    finally:
        await asyncio.gather(running, return_exceptions=True)


def _both(values: dict[str, list[float]]) -> tuple[list[float], list[float]]:
    return values["ours"], values["theirs"]
