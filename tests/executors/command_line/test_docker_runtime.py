"""The OCI runtime `runsc` of gVisor, whose user-space kernel lacks features of Linux."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    BackendLost,
    CellblockError,
    CodeResult,
    DockerCommandLineCodeExecutor,
    DockerSessionCodeExecutor,
    Limits,
)
from cellblock.backends import connection
from cellblock.limits import MIB
from cellblock.testing.conformance import CHECKS, EXECUTORS, ConformanceTarget
from cellblock.testing.liveness import assert_dead, wait_until
from tests.containers import docker_engine
from tests.containers.test_seccomp_profile import PROBE
from tests.executors.blocks import run
from tests.suite.tiers import exhaustive

RUNSC = shutil.which("runsc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.skipif(RUNSC is None, reason="gVisor's runsc is not installed (Debian: runsc)"),
]
KERNEL = "import os; print(os.uname().release)"
# Checks of the contract that pass, mostly about how blocks end.
MET_CHECKS = (
    "cancelled_task_ends_the_block_and_raises",
    "daemon_with_open_pipes_is_killed",
    "nothing_is_left_if_the_owner_process_is_killed",
    "concurrent_calls_get_their_own_results",
    "cpu_time_limit_covers_the_process_tree",
    "memory_limit_covers_the_process_tree",
    "written_bytes_limit_is_reported",
    "files_limit_is_reported",
    "endlessly_forking_processes_are_killed",
    "stopped_processes_are_killed",
    "threads_and_processes_work",
    "processes_that_ignore_signals_end_at_the_time_limit",
)
# Checks that fail because gVisor lacks a feature. See SECURITY.md.
UNMET_CHECKS = (
    "full_disk_raises_an_error_and_is_recoverable",
    "output_keeps_the_order_of_stdout_and_stderr",
)
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for descriptor in range(3):
        os.close(descriptor)
    while True:
        with open("life", "a") as file:
            file.write("x")
        time.sleep(0.02)
while not (os.path.exists("life") and os.path.getsize("life")):
    time.sleep(0.02)
print("left behind")
"""


@pytest.fixture(scope="module")
def gvisor_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[docker_engine.Engine]:
    """Yield an engine that has `runsc` as a runtime, without networks for its containers."""
    settings = tmp_path_factory.mktemp("engine") / "daemon.json"
    settings.write_text(
        json.dumps({"runtimes": {"runsc": {"path": RUNSC, "runtimeArgs": ["--network=none"]}}})
    )
    with docker_engine.private_engine(f"--config-file={settings}") as one:
        yield one


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch, gvisor_engine: docker_engine.Engine) -> str:
    monkeypatch.setenv("DOCKER_HOST", gvisor_engine.host)
    return gvisor_engine.test_image("python")


def results_of(image: str, *codes: str, **options: Any) -> list[CodeResult]:
    async def main() -> list[CodeResult]:
        async with DockerCommandLineCodeExecutor(image, runtime="runsc", **options) as executor:
            return [await run(executor, code) for code in codes]

    return asyncio.run(main())


def test_blocks_run_on_gvisors_kernel(image: str) -> None:
    code = (
        "import os, sys; open('made', 'w').write('x'); print(os.getuid(), os.getgid(), "
        "'decimal' in sys.modules)"
    )
    kernel, plain = results_of(image, KERNEL, code, preload=["decimal"], user="77:88")
    assert kernel.check().output.strip() != os.uname().release
    assert plain.output == "77 88 True\n"


def test_system_calls_are_filtered_although_gvisor_ignores_the_engines_filter(image: str) -> None:
    assert results_of(image, PROBE)[0].check().output == ""


async def test_a_daemon_is_killed_with_its_own_block_only(image: str, tmp_path: Path) -> None:
    async with DockerCommandLineCodeExecutor(image, runtime="runsc", work_dir=tmp_path) as executor:
        beside = asyncio.create_task(run(executor, "import time\nwhile True: time.sleep(1)"))
        left = await run(executor, DAEMON)
        assert (left.output, left.outcome) == ("left behind\n", "ok")
        await assert_dead(tmp_path / "life")
        assert not beside.done(), beside
        beside.cancel()


def test_the_time_limit_keeps_the_output_and_kills_the_process_tree(
    image: str, tmp_path: Path
) -> None:
    (late,) = results_of(image, DAEMON + "time.sleep(60)", work_dir=tmp_path, timeout=5)
    assert (late.exit_code, late.outcome, late.output) == (124, "timeout", "left behind\n\nTimeout")
    asyncio.run(assert_dead(tmp_path / "life"))


async def test_a_block_cannot_signal_another_block(image: str) -> None:
    async with DockerCommandLineCodeExecutor(image, runtime="runsc") as executor:
        beside = asyncio.create_task(
            run(
                executor,
                "import os, time\nopen('begun', 'w').close()\n"
                "while not os.path.exists('over'): time.sleep(0.02)\nprint('beside')",
            )
        )
        await wait_until((executor.work_dir / "begun").exists, "the other block runs")
        everybody = (
            "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: os.kill(int(pid), 0)\n"
        )
        everybody += (
            "    except ProcessLookupError: pass\n"
            "    else: print(pid == str(os.getpid()) or int(pid) == 1)\n"
        )
        assert "False" not in (await run(executor, everybody)).output
        ended = await run(
            executor, "import os, time; os.fork(); os.kill(-1, 9); os.kill(1, 9); time.sleep(60)"
        )
        assert (ended.exit_code, "stopped responding" in ended.output) == (137, False), ended
        (executor.work_dir / "over").touch()
        assert (await beside).output == "beside\n"


def test_out_of_memory_is_reported_and_the_container_keeps_running(image: str) -> None:
    hungry = (
        "held = []\nwhile True:\n    held.append(b'x' * (10 << 20))\n"
        "    import time; time.sleep(0.02)"
    )
    ended, after = results_of(image, hungry, "print('fine')", limits=Limits(memory_bytes=150 * MIB))
    assert (ended.exit_code, ended.outcome, ended.limit) == (
        137,
        "out_of_memory",
        "memory_bytes",
    ), ended
    assert after.output == "fine\n"


async def check(name: str, image: str) -> None:
    await CHECKS[name](ConformanceTarget(EXECUTORS["docker"], {"image": image, "runtime": "runsc"}))


@pytest.mark.parametrize("name", exhaustive(MET_CHECKS, keep=3))
async def test_the_check_passes(name: str, image: str) -> None:
    await check(name, image)


@pytest.mark.parametrize("name", exhaustive(UNMET_CHECKS))
async def test_the_unsupported_check_fails(name: str, image: str) -> None:
    with pytest.raises((AssertionError, CellblockError)):
        await check(name, image)


async def test_too_many_processes_restart_the_container_and_are_reported(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PONG_SECONDS", 5.0)
    bomb = (
        "import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(60)\n"
        "        os._exit(0)"
    )
    async with DockerCommandLineCodeExecutor(
        image, runtime="runsc", limits=Limits(processes=4)
    ) as executor:
        try:
            result = await run(executor, bomb)
        except BackendLost:  # the engine can remove the container before its restart
            await executor.restart()
        else:
            assert (result.outcome, "stopped responding" in result.output) == ("killed", True), (
                result
            )
        assert (await run(executor, "print('again')")).output == "again\n"


def test_each_stream_is_complete_although_their_relative_order_is_lost(image: str) -> None:
    code = "import os\nfor number in range(300):\n    os.write(1 + number % 2, b'%d\\n' % number)"
    (result,) = results_of(image, code)
    assert result.stdout == "".join(f"{number}\n" for number in range(0, 300, 2))
    assert result.stderr == "".join(f"{number}\n" for number in range(1, 300, 2))


def test_a_session_reports_what_gvisor_lacks(image: str) -> None:
    with pytest.raises(BackendError, match="PR_SET_CHILD_SUBREAPER"):
        asyncio.run(DockerSessionCodeExecutor(image, runtime="runsc").start())
