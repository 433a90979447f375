"""Blocks in a container, its start and its stop, compared with the `docker` command."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import subprocess
from collections.abc import Callable, Generator
from typing import Any

import cellblock
from benchmarks.callers import run_callers
from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.measure import HI, Effort, NotMeasured, interleave, time_call, time_calls
from benchmarks.session_speed import CELL, interleave_async, run_live, seconds_of
from benchmarks.single import PANDAS
from cellblock import CodeBlock
from cellblock.sync import DockerCommandLineCodeExecutor

_IMAGE = "python:3-slim"
_CALLERS = 8
_BATCH = 20
# Other tools take ten seconds to stop a container with such a process.
_IGNORES_SIGTERM = "trap '' TERM; sleep 60"


def docker(*arguments: str) -> str:
    """Run the `docker` command and return its output."""
    if shutil.which("docker") is None:
        raise NotMeasured("the `docker` command is not installed.")
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def docker_exec(container: str, code: str) -> str:
    """Run `code` with `docker exec`."""
    return docker("exec", container, "python3", "-c", code)


def run_block(executor: DockerCommandLineCodeExecutor, code: str) -> str:
    """Run `code` as a block."""
    return executor.execute_code_blocks([CodeBlock(code, "python")]).check().output


def _image(effort: Effort) -> str:
    return effort.texts.get("image") or _IMAGE


@contextlib.contextmanager
def _started_executor(
    code: str, **options: Any
) -> Generator[tuple[DockerCommandLineCodeExecutor, str]]:
    """Yield an executor and its container, after a check that `code` prints the same both ways."""
    with DockerCommandLineCodeExecutor(**options) as executor:
        container = str(executor.container)
        if (ours := run_block(executor, code)) != (theirs := docker_exec(container, code)):
            raise RuntimeError(f"The block printed {ours!r}, docker exec printed {theirs!r}.")
        yield executor, container


def back_to_back(effort: Effort) -> list[Figure]:
    """Run blocks back to back: the mean of a batch, compared with one `docker exec`."""
    with _started_executor(HI, image=_image(effort)) as (executor, container):
        values = interleave(
            effort.pick(20, 2),
            {
                "ours": lambda: statistics.mean(
                    time_calls(lambda: run_block(executor, HI), _BATCH)
                ),
                "theirs": lambda: time_call(lambda: docker_exec(container, HI)),
            },
        )
    bound = Bound("at most", 0.12)
    return [
        compare_medians(
            "print('hi') per block, started container", *_both(values), bound, unit="ms", scale=1000
        )
    ]


def preloaded(effort: Effort) -> list[Figure]:
    """Use preloaded pandas, compared with a `docker exec` that imports it."""
    names = ("numpy", "pandas")
    options = {"image": _image(effort), "packages": names, "preload": names}
    with _started_executor(PANDAS, **options) as (executor, container):
        values = interleave(
            effort.pick(12, 2),
            {
                "ours": lambda: statistics.median(
                    time_calls(lambda: run_block(executor, PANDAS), 5, pause=0.02)
                ),
                "theirs": lambda: time_call(lambda: docker_exec(container, PANDAS)),
            },
        )
    bound = Bound("at most", 0.03)
    return [
        compare_medians("pandas groupby, preloaded", *_both(values), bound, unit="ms", scale=1000)
    ]


def eight_callers(effort: Effort) -> list[Figure]:
    """Compare 8 callers of one executor with 8 callers of `docker exec` in the same container."""
    seconds = effort.pick(3, 1)
    with _started_executor(HI, image=_image(effort)) as (executor, container):
        wrong: list[int] = []

        def rate(ask: Callable[[str], str]) -> float:
            found = run_callers(_CALLERS, seconds, lambda _, code: ask(code))
            wrong.append(found.wrong_results)
            return found.rate

        values = interleave(
            effort.pick(5, 1),
            {
                "ours": lambda: rate(lambda code: run_block(executor, code)),
                "theirs": lambda: rate(lambda code: docker_exec(container, code)),
            },
        )
    note = f"results of another caller: {sum(wrong)}"
    return [
        compare_medians(
            "8 callers at once", *_both(values), Bound("at least", 8), unit="runs/s", note=note
        )
    ]


def session_cell(effort: Effort) -> list[Figure]:
    """Compare a trivial block of a session in a container with one in the sandbox."""
    kind: Any = getattr(cellblock, "DockerSessionCodeExecutor", None)
    if kind is None:
        raise NotMeasured("there is no DockerSessionCodeExecutor yet.")
    values = asyncio.run(_session_cells(kind, effort))
    more = [ours - theirs for ours, theirs in zip(values["ours"], values["theirs"], strict=True)]
    medians = [statistics.median(values[name]) * 1000 for name in ("ours", "theirs")]
    note = f"{medians[0]:.2f} ms, in the sandbox {medians[1]:.2f} ms"
    measure = "trivial session cell, more than in the sandbox"
    return [check_median(measure, more, Bound("at most", 3), unit="ms", scale=1000, note=note)]


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
        return await interleave_async(
            effort.pick(20, 2), ours=lambda: batch(ours), theirs=lambda: batch(theirs)
        )


def starting(effort: Effort) -> list[Figure]:
    """Compare `start()` with `docker run -d` and a first `docker exec`."""
    image = _image(effort)
    values = interleave(
        effort.pick(12, 2),
        {"ours": lambda: _start_seconds(image), "theirs": lambda: _docker_run_seconds(image)},
    )
    measure, bound = "start(), beside docker run -d and a first exec", Bound("at most", 1.3)
    return [compare_medians(measure, *_both(values), bound, unit="ms", scale=1000)]


def _start_seconds(image: str) -> float:
    executor = DockerCommandLineCodeExecutor(image)
    try:
        return time_call(executor.start)
    finally:
        executor.stop()


def _docker_run_seconds(image: str) -> float:
    started: list[str] = []

    def first_answer() -> None:
        options = ("--detach", "--interactive", "--network", "none", "--entrypoint", "/bin/sh")
        started.append(docker("run", *options, image, "-c", "read _").strip())
        docker_exec(started[0], HI)

    try:
        return time_call(first_answer)
    finally:
        for container in started:
            docker("rm", "--force", container)


def stopping(effort: Effort) -> list[Figure]:
    """Measure `stop()` while a shell that ignores SIGTERM runs in the container."""
    values = [asyncio.run(_stop_seconds(_image(effort))) for _ in range(effort.pick(8, 2))]
    return [
        check_median(
            "stop(), while a shell ignores SIGTERM",
            values,
            Bound("at most", 1000),
            unit="ms",
            scale=1000,
        )
    ]


async def _stop_seconds(image: str) -> float:
    executor = cellblock.DockerCommandLineCodeExecutor(image)
    await executor.start()
    running = asyncio.ensure_future(
        executor.execute_code_blocks([CodeBlock(_IGNORES_SIGTERM, "sh")])
    )
    await asyncio.sleep(0.3)
    try:
        return await seconds_of(executor.stop())
    finally:
        await asyncio.gather(running, return_exceptions=True)


def _both(values: dict[str, list[float]]) -> tuple[list[float], list[float]]:
    return values["ours"], values["theirs"]
