"""Every executor meets the contract. An ordinary user runs this file too, in `.ci/run`."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock.executors.base import CodeExecutor
from cellblock.testing.conformance import (
    CHECKS,
    EXECUTORS,
    CheckSkipped,
    ConformanceTarget,
    checks_for,
)
from tests.containers import docker_engine, podman_engine
from tests.executors.jupyter import kernels
from tests.executors.session import session_image
from tests.executors.shared_executor import SharedExecutorTarget
from tests.plain_user import unprivileged_command

SUBJECTS = {
    "sandbox": ConformanceTarget(EXECUTORS["sandbox"]),
    "landlock": ConformanceTarget(EXECUTORS["sandbox"], {"isolation": "landlock"}),
    "local": ConformanceTarget(EXECUTORS["local"]),
    "session": ConformanceTarget(EXECUTORS["session"]),
    "docker": ConformanceTarget(EXECUTORS["docker"]),
    "docker-session": ConformanceTarget(EXECUTORS["docker-session"]),
    "podman": ConformanceTarget(EXECUTORS["docker"]),
    "jupyter": ConformanceTarget(EXECUTORS["jupyter"]),
}
IMAGES: dict[str, Callable[[pytest.MonkeyPatch], str]] = {
    "docker": lambda patch: docker_engine.use_shared_engine(patch, "python"),
    "podman": lambda patch: podman_engine.use_shared_engine(patch, "python"),
    "docker-session": session_image.use_session_image,
}
_KERNEL_DIES = (
    "a block that ends its process ends the kernel: this is reported so, and unsent output is lost"
)
_PROCESSES_STAY = (
    "a session continues after a block, and so do the processes that the block started"
)
_NO_FILE = "a block is a request and not a file, so there is no __file__"
_SEPARATE_STREAMS = (
    "ipykernel reads descriptors 1 and 2 separately, in pieces that can end inside a character"
)
# Maps executor and check to the reason why the check must fail.
DIFFERENCES = {
    (
        "landlock",
        "threads_and_processes_work",
    ): "no sockets and no /dev/shm, which multiprocessing needs",
    ("jupyter", "exit_codes_are_passed_through"): _KERNEL_DIES,
    ("jupyter", "death_by_signal_is_exit_code_128_plus_signal"): _KERNEL_DIES,
    (
        "jupyter",
        "out_of_memory_is_reported",
    ): "the last line is the notice that the kernel was restarted",
    ("jupyter", "endlessly_forking_processes_are_killed"): _KERNEL_DIES,
    ("jupyter", "block_continues_after_closing_its_output"): _KERNEL_DIES,
    ("jupyter", "child_process_left_running_is_killed"): _PROCESSES_STAY,
    ("jupyter", "grandchild_with_open_pipes_is_killed"): _PROCESSES_STAY,
    ("jupyter", "daemon_with_closed_pipes_is_killed"): _PROCESSES_STAY,
    ("jupyter", "daemon_with_open_pipes_is_killed"): _PROCESSES_STAY,
    ("jupyter", "standard_input_is_empty"): "input() raises StdinNotImplementedError",
    (
        "jupyter",
        "temporary_work_folder_is_removed_on_stop",
    ): "without a work_dir a kernel starts in the current folder",
    ("jupyter", "named_file_is_written_run_and_kept"): _NO_FILE,
    ("jupyter", "output_order_is_kept_after_much_output_on_one_stream"): _SEPARATE_STREAMS,
    ("jupyter", "output_of_child_processes_is_kept"): _SEPARATE_STREAMS,
    ("jupyter", "character_split_across_writes_is_decoded"): _SEPARATE_STREAMS,
}
# Maps executor and check to the reason why the check is not reliable.
UNRELIABLE = {
    (
        "jupyter",
        "large_output_is_truncated_and_marked",
    ): "takes a minute, and output printed within 0.2 s arrives in one piece of any size",
    (
        "jupyter",
        "open_files_limit_applies",
    ): "IPython's history needs a file too, and reports an error if it cannot open one",
    ("jupyter", "stopped_processes_are_killed"): _KERNEL_DIES,
    (
        "jupyter",
        "files_limit_is_reported",
    ): "they count for the kernel, which the next check ends",
    (
        "jupyter",
        "cpu_time_limit_covers_the_process_tree",
    ): "they count for the kernel, which can have used them up during its start",
    ("jupyter", "invalid_bytes_in_output_are_replaced"): _SEPARATE_STREAMS,
}


# What these need is marked, and takes long to start.
MARKS = {
    "docker": pytest.mark.engine,
    "docker-session": pytest.mark.engine,
    "podman": pytest.mark.engine,
    "jupyter": pytest.mark.kernel,
}
# Their executors can share a server.
KEPT = {"sandbox", "session"}


@pytest.fixture(autouse=True, scope="module")
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        kernels.install_kernel_specs(patch, tmp_path_factory.mktemp("jupyter"))
        yield
        for started in _started:
            asyncio.run(started.stop())
        _started.clear()
        shared_target.cache_clear()
        keep_server.cache_clear()


_started: list[SharedExecutorTarget | CodeExecutor] = []


@functools.cache
def shared_target(subject: str, image: str | None) -> SharedExecutorTarget:
    """Return the target of a subject whose executors take long to start."""
    options = {} if image is None else {"image": image}
    target = SharedExecutorTarget(SUBJECTS[subject].factory, options)
    _started.append(target)
    return target


@functools.cache
def keep_server(subject: str) -> None:
    """Keep the server of a subject: starting one takes most of the time of a check.

    Executors with the default options join it, as they do in programs that have several. The
    others start servers of their own.
    """
    executor = SUBJECTS[subject].create()
    asyncio.run(executor.start())
    _started.append(executor)


def cases() -> list[object]:
    found: list[object] = []
    for subject in SUBJECTS:
        for name in checks_for(SUBJECTS[subject]):
            marks: list[pytest.MarkDecorator] = [MARKS[subject]] if subject in MARKS else []
            if reason := DIFFERENCES.get((subject, name)):
                marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
            if reason := UNRELIABLE.get((subject, name)):
                marks.append(pytest.mark.skip(reason=reason))
            found.append(pytest.param(subject, name, marks=marks, id=f"{subject}-{name}"))
    return found


@pytest.mark.parametrize(("subject", "name"), cases())
def test_executor_meets_the_contract(
    subject: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # kernels without a work_dir run in the current folder

    async def check() -> None:
        if subject in MARKS:
            await shared_target(subject, image).run_check(name)
        else:
            await CHECKS[name](SUBJECTS[subject])

    image = IMAGES[subject](monkeypatch) if subject in IMAGES else None
    if subject in KEPT:
        keep_server(subject)
    try:
        asyncio.run(check())
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", ["sandbox", "session"])
def test_the_command_checks_an_executor_without_root(name: str) -> None:
    made = unprivileged_command(
        "-m", "cellblock.testing.conformance", name, "--only", "work_folder"
    )
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^ok .*work_folder", done.stdout, re.M)) > 3, done.stdout


def test_the_command_lists_the_executors_it_can_check() -> None:
    made = unprivileged_command("-m", "cellblock.testing.conformance", "nonsense")
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "sandbox" in done.stderr


def test_a_broken_executor_fails_the_suite() -> None:
    argv = [
        sys.executable,
        "-m",
        "cellblock.testing.conformance",
        "tests.testing.broken_executor:BrokenExecutor",
        "--only",
        "success",
    ]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED    success_has_exit_code_zero" in done.stdout
