"""Start a box, run commands in it and copy files: `python -m benchmarks.box`.

The sides of a comparison take turns, so that other load affects both. Compare the ratios of
medians.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence

from benchmarks import command
from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.kernels import Kernel, require_kernels
from benchmarks.measure import Effort, time_call
from benchmarks.session_speed import interleave_async, seconds_of
from cellblock import Sandbox

_BATCH = 20
_MIB = 1 << 20
_COMMAND_MILLISECONDS = 1.0  # that a command may take besides half of a plain process


def starting(effort: Effort) -> list[Figure]:
    """Start a box beside another one, and an ipykernel, each until its first answer."""
    require_kernels()
    values = asyncio.run(_start_times(effort.pick(15, 2)))
    bound = Bound("at most", 0.03)
    title = "start until the first command has ended, beside ipykernel"
    return [compare_medians(title, values["ours"], values["theirs"], bound, unit="ms", scale=1000)]


async def _start_times(rounds: int) -> dict[str, list[float]]:
    async with Sandbox():
        return await interleave_async(rounds, ours=_start_box, theirs=_start_kernel)


async def _start_box() -> float:
    box = Sandbox()
    try:
        return await seconds_of(box.exec(["true"]))
    finally:
        await box.close()


async def _start_kernel() -> float:
    started: list[Kernel] = []

    async def first_answer() -> None:
        started.append(await Kernel.start())
        await started[0].run("1")

    try:
        return await seconds_of(first_answer())
    finally:
        for one in started:
            await one.stop()


def commands(effort: Effort) -> list[Figure]:
    """Run `true` in a box, and as a plain process."""
    values = asyncio.run(_command_times(effort.pick(30, 3)))
    theirs = statistics.median(values["theirs"]) * 1000
    bound = Bound("at most", round(theirs / 2 + _COMMAND_MILLISECONDS, 2))
    ours = values["ours"]
    return [
        check_median('`exec(["true"])`', ours, bound, unit="ms", scale=1000),
        check_median('`subprocess.run(["true"])`', values["theirs"], None, unit="ms", scale=1000),
    ]


async def _command_times(rounds: int) -> dict[str, list[float]]:
    async with Sandbox() as box:

        async def ours() -> float:
            async def batch() -> None:
                for _ in range(_BATCH):
                    await box.exec(["true"])

            return await seconds_of(batch()) / _BATCH

        async def theirs() -> float:
            def batch() -> None:
                for _ in range(_BATCH):
                    subprocess.run(["true"], check=True, capture_output=True)

            return time_call(batch) / _BATCH

        return await interleave_async(rounds, ours=ours, theirs=theirs)


def files(effort: Effort) -> list[Figure]:
    """Write and read 1 MiB in a box, and copy such a file."""
    values = asyncio.run(_file_times(effort.pick(30, 3)))
    bound = Bound("at most", 3)
    return [
        compare_medians(
            f"{name} 1 MiB, beside a copy of a file",
            values[name],
            values["theirs"],
            bound,
            unit="ms",
            scale=1000,
        )
        for name in ("write", "read")
    ]


async def _file_times(rounds: int) -> dict[str, list[float]]:
    data = os.urandom(_MIB)
    with tempfile.TemporaryDirectory() as folder:
        async with Sandbox() as box:
            await box.files.write("file", data)
            source, copy = f"{folder}/source", f"{folder}/copy"
            await box.files.download("file", source)

            async def theirs() -> float:
                return time_call(lambda: shutil.copyfile(source, copy))

            return await interleave_async(
                rounds,
                write=lambda: seconds_of(box.files.write("file", data)),
                read=lambda: seconds_of(box.files.read("file")),
                theirs=theirs,
            )


MEASURES: dict[str, command.Measure] = {
    "start": starting,
    "exec": commands,
    "files": files,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    command.run("benchmarks.box", MEASURES, arguments, about=__doc__)


if __name__ == "__main__":
    main()
