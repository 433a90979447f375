"""The conformance checks, run on kernels in containers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.testing.conformance import CheckSkipped, checks_for
from tests.containers import docker_engine
from tests.executors.jupyter import docker_kernels
from tests.executors.shared_executor import SharedExecutorTarget

pytestmark = [pytest.mark.engine, pytest.mark.kernel]

TARGET = SharedExecutorTarget("tests.executors.jupyter.docker_kernels:ContainerKernelExecutor")
_DIES = "the process that the block ends is the kernel, which is reported differently"
_LIVES = "a kernel keeps running after a block, and so do the processes that the block started"
_OTHERS = "blocks in other languages are not run"
_OUTSIDE = "not visible from outside the container"
_STREAMS = (
    "ipykernel reads the descriptors 1 and 2 separately, in pieces that may end inside a character"
)
# Check -> the difference, which is expected.
DIFFERENCES = {
    "success_has_exit_code_zero": f"CPU time is {_OUTSIDE}",
    "exit_codes_are_passed_through": _DIES,
    "death_by_signal_is_exit_code_128_plus_signal": _DIES,
    "out_of_memory_is_reported": "the last line is the notice that the kernel was restarted",
    "temporary_work_folder_is_removed_on_stop": "without a bind_dir it is inside the container",
    "named_file_is_written_run_and_kept": "a block is a request, not a file: there is no __file__",
    "standard_input_is_empty": "input() raises StdinNotImplementedError",
    "block_continues_after_closing_its_output": _DIES,
    "endlessly_forking_processes_are_killed": _DIES,
}
# Checks that are not run. Most of them differ as they do for local kernels, where they are run.
LEFT_OUT = {
    "output_order_is_kept_for_shell_programs": _OTHERS,
    "fold_of_events_equals_the_result": _OTHERS,
    "each_block_has_its_own_result": _OTHERS,
    "blocks_share_files": _OTHERS,
    "shell_background_job_is_killed": _OTHERS,
    "output_order_is_kept_after_much_output_on_one_stream": _STREAMS,
    "character_split_across_writes_is_decoded": _STREAMS,
    "output_of_child_processes_is_kept": _STREAMS,
    "child_process_left_running_is_killed": _LIVES,
    "grandchild_with_open_pipes_is_killed": _LIVES,
    "daemon_with_closed_pipes_is_killed": _LIVES,
    "daemon_with_open_pipes_is_killed": _LIVES,
    "large_output_is_truncated_and_marked": "takes minutes",
    "memory_limit_covers_the_process_tree": "if a child process is killed, the block continues",
    "cpu_time_limit_covers_the_process_tree": _OUTSIDE,
    "written_bytes_limit_is_reported": _OUTSIDE,
    "files_limit_is_reported": _OUTSIDE,
    "open_files_limit_applies": "IPython's history needs a file too, and reports that it has none",
    "stopped_processes_are_killed": _DIES,
    "invalid_bytes_in_output_are_replaced": _STREAMS,
    "nothing_is_left_if_the_owner_process_is_killed": "see test_docker_server.py",
}


@pytest.fixture(autouse=True, scope="module")
def _container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", docker_engine.shared_engine().host)
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("contained")))
        yield
        asyncio.run(TARGET.stop())
        docker_kernels.shared_server().stop()
        docker_kernels.shared_server.cache_clear()


def cases() -> list[object]:
    found: list[object] = []
    for name in checks_for(TARGET):
        marks: list[pytest.MarkDecorator] = []
        if reason := DIFFERENCES.get(name):
            marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
        if name not in LEFT_OUT:
            found.append(pytest.param(name, marks=marks))
    return found


@pytest.mark.parametrize("name", cases())
def test_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    try:
        asyncio.run(TARGET.run_check(name))
    except CheckSkipped as reason:
        pytest.skip(str(reason))


def test_every_listed_exception_names_an_existing_check() -> None:
    assert (DIFFERENCES | LEFT_OUT).keys() <= checks_for(TARGET).keys()
