"""The one contract, on every executor; and on the sandbox without root."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock.testing.conformance import CHECKS, KNOWN, NotHere, Subject, checks_for
from tests.containers import docker_engine, podman_engine
from tests.executors.jupyter import kernels
from tests.executors.session import session_image
from tests.plain_user import command

SUBJECTS = {
    "sandbox": Subject(KNOWN["sandbox"]),
    "landlock": Subject(KNOWN["sandbox"], {"isolation": "landlock"}),
    "local": Subject(KNOWN["local"]),
    "session": Subject(KNOWN["session"]),
    "docker": Subject(KNOWN["docker"]),
    "docker-session": Subject(KNOWN["docker-session"]),
    "podman": Subject(KNOWN["docker"]),
    "jupyter": Subject(KNOWN["jupyter"]),
}
IMAGES: dict[str, Callable[[pytest.MonkeyPatch], str]] = {
    "docker": lambda patch: docker_engine.prepare(patch, "python"),
    "podman": lambda patch: podman_engine.prepare(patch, "python"),
    "docker-session": session_image.prepare,
}
_DIES = (
    "the process that a block ends is the kernel: told as such, and its last, unsent output is lost"
)
_LIVES = "a session goes on after a block, and so does what the block started there"
_NO_FILE = "a block is a request, not a file: there is no __file__"
_STREAMS = (
    "ipykernel reads the descriptors 1 and 2 apart, in pieces that may end inside a character"
)
# Subject and check -> what differs by nature.
DIFFERENCES = {
    (
        "landlock",
        "threads_and_processes_work",
    ): "no sockets and no /dev/shm, which multiprocessing needs",
    ("jupyter", "exit_codes_are_the_programs_own"): _DIES,
    ("jupyter", "signals_and_crashes_are_128_and_their_number"): _DIES,
    (
        "jupyter",
        "out_of_memory_is_named",
    ): "the last line is the notice that the kernel was restarted",
    ("jupyter", "processes_that_fork_without_end_are_ended"): _DIES,
    ("jupyter", "closed_streams_do_not_end_a_block"): _DIES,
    ("jupyter", "a_child_that_outlives_its_block_is_ended"): _LIVES,
    ("jupyter", "a_grandchild_that_holds_the_pipe_is_ended"): _LIVES,
    ("jupyter", "a_daemon_that_closed_the_pipes_is_ended"): _LIVES,
    ("jupyter", "a_daemon_that_keeps_the_pipes_is_ended"): _LIVES,
    ("jupyter", "standard_input_is_at_its_end"): "input() raises StdinNotImplementedError",
    (
        "jupyter",
        "a_temporary_work_folder_goes_with_it",
    ): "without a work_dir a kernel starts in the current folder",
    ("jupyter", "a_named_file_is_written_run_and_kept"): _NO_FILE,
    ("jupyter", "order_holds_after_much_on_one_stream"): _STREAMS,
    ("jupyter", "output_of_children_is_kept"): _STREAMS,
    ("jupyter", "text_that_is_cut_between_two_writes_is_whole"): _STREAMS,
}
# Whether these hold there is a matter of time.
UNSURE = {
    (
        "jupyter",
        "a_gigabyte_is_cut_and_says_so",
    ): "takes a minute; and what is printed in 0.2 s comes in one piece, of any size",
    (
        "jupyter",
        "open_files_are_bounded",
    ): "IPython's history needs a file as well, and complains when it gets none",
    ("jupyter", "stopped_processes_are_ended"): _DIES,
    (
        "jupyter",
        "cpu_seconds_end_a_busy_block",
    ): "they are those of the kernel, which may have used them up at its start",
    ("jupyter", "bytes_that_are_no_text_are_replaced"): _STREAMS,
}


@pytest.fixture(autouse=True, scope="module")
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        kernels.prepare(patch, tmp_path_factory.mktemp("jupyter"))
        yield


def cases() -> list[object]:
    found: list[object] = []
    for subject in SUBJECTS:
        for name in checks_for(SUBJECTS[subject]):
            marks: list[pytest.MarkDecorator] = []
            if reason := DIFFERENCES.get((subject, name)):
                marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
            if reason := UNSURE.get((subject, name)):
                marks.append(pytest.mark.skip(reason=reason))
            found.append(pytest.param(subject, name, marks=marks, id=f"{subject}-{name}"))
    return found


@pytest.mark.parametrize(("subject", "name"), cases())
def test_contract(subject: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where kernels without a work_dir run

    tested = SUBJECTS[subject]
    if subject in IMAGES:
        tested = Subject(tested.factory, {"image": IMAGES[subject](monkeypatch)})

    async def check() -> None:
        await CHECKS[name](tested)

    try:
        asyncio.run(check())
    except NotHere as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["sandbox", "session"])
def test_the_sandbox_keeps_the_contract_without_root(name: str) -> None:
    made = command("-m", "cellblock.testing.conformance", name)
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok ") > 40, done.stdout


def test_the_command_says_what_it_can_check() -> None:
    made = command("-m", "cellblock.testing.conformance", "nonsense")
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
        "tests.testing.broken_executor:Liar",
        "--only",
        "success",
    ]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED    success_is_zero_and_ok" in done.stdout
