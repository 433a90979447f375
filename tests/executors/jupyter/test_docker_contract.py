"""The one contract, on kernels in containers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.testing.conformance import CHECKS, NotHere, Subject, checks_for
from tests.containers import docker_engine
from tests.executors.jupyter import docker_kernels

SUBJECT = Subject("docker_kernels:InContainer")
_DIES = "the process that a block ends is the kernel: told as such"
_LIVES = "a session goes on after a block, and so does what the block started there"
_OTHERS = "blocks in other languages are not run"
_OUTSIDE = "not known from outside the container"
_STREAMS = (
    "ipykernel reads the descriptors 1 and 2 apart, in pieces that may end inside a character"
)
# Check -> what differs by nature.
DIFFERENCES = {
    "success_is_zero_and_ok": f"CPU time is {_OUTSIDE}",
    "exit_codes_are_the_programs_own": _DIES,
    "signals_and_crashes_are_128_and_their_number": _DIES,
    "out_of_memory_is_named": "the last line is the notice that the kernel was restarted",
    "a_temporary_work_folder_goes_with_it": "without a bind_dir the folder is one inside the container",
    "a_named_file_is_written_run_and_kept": "a block is a request, not a file: there is no __file__",
    "standard_input_is_at_its_end": "input() raises StdinNotImplementedError",
    "closed_streams_do_not_end_a_block": _DIES,
    "processes_that_fork_without_end_are_ended": _DIES,
}
# Not asked; most of them differ as they do for kernels of this machine, where they are asked.
LEFT_OUT = {
    "order_holds_for_shell_programs": _OTHERS,
    "events_fold_to_the_result": _OTHERS,
    "blocks_have_results_of_their_own": _OTHERS,
    "blocks_share_their_files": _OTHERS,
    "a_background_job_of_a_shell_is_ended": _OTHERS,
    "order_holds_after_much_on_one_stream": _STREAMS,
    "text_that_is_cut_between_two_writes_is_whole": _STREAMS,
    "output_of_children_is_kept": _STREAMS,
    "a_child_that_outlives_its_block_is_ended": _LIVES,
    "a_grandchild_that_holds_the_pipe_is_ended": _LIVES,
    "a_daemon_that_closed_the_pipes_is_ended": _LIVES,
    "a_daemon_that_keeps_the_pipes_is_ended": _LIVES,
    "a_gigabyte_is_cut_and_says_so": "takes minutes",
    "memory_counts_for_the_whole_tree": "the one that is ended need not be the kernel, and the block goes on",
    "cpu_seconds_end_a_busy_block": _OUTSIDE,
    "too_much_written_is_named": _OUTSIDE,
    "open_files_are_bounded": "IPython's history needs a file as well, and complains when it gets none",
    "stopped_processes_are_ended": _DIES,
    "bytes_that_are_no_text_are_replaced": _STREAMS,
    "a_killed_owner_leaves_nothing": "the container's end with its owner has a test of its own",
}


@pytest.fixture(autouse=True, scope="module")
def _container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", docker_engine.running().host)
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("contained")))
        yield
        docker_kernels.shared().stop()
        docker_kernels.shared.cache_clear()


def cases() -> list[object]:
    found: list[object] = []
    for name in checks_for(SUBJECT):
        marks: list[pytest.MarkDecorator] = []
        if reason := DIFFERENCES.get(name):
            marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
        if name not in LEFT_OUT:
            found.append(pytest.param(name, marks=marks))
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", cases())
def test_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def check() -> None:
        await CHECKS[name](SUBJECT)

    try:
        asyncio.run(check())
    except NotHere as reason:
        pytest.skip(str(reason))


def test_what_is_said_of_checks_is_said_of_checks_that_there_are() -> None:
    assert (DIFFERENCES | LEFT_OUT).keys() <= checks_for(SUBJECT).keys()
