"""The executor of Azure sessions meets the contract as far as the protocol can express it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from cellblock.testing.conformance import CHECKS, ConformanceTarget
from tests.executors.remote.pool import running_pool
from tests.executors.shared_executor import contract_cases, skipping

FACTORY = "tests.executors.remote.mirrored:MirroredExecutor"
_NO_LIMIT = "the protocol has no such limit: the server enforces its own"
_STREAMS = "the protocol has stdout and stderr apart, at the end of a run"
_FILES = "a restart begins another session, and a session has its own files"
DIFFERENCES = {
    "success_has_exit_code_zero": "the protocol does not report CPU time",
    "cancelled_token_ends_the_block_and_keeps_its_output": (
        "the protocol has no answer for a run that is given up"
    ),
    "out_of_memory_is_reported": _NO_LIMIT,
    "memory_limit_covers_the_process_tree": _NO_LIMIT,
    "cpu_time_limit_covers_the_process_tree": _NO_LIMIT,
    "file_size_limit_applies": _NO_LIMIT,
    "written_bytes_limit_is_reported": _NO_LIMIT,
    "files_limit_is_reported": _NO_LIMIT,
    "open_files_limit_applies": _NO_LIMIT,
    "process_limit_stops_a_fork_bomb": _NO_LIMIT,
    "save_output_saves_the_whole_output": "the service cuts the output",
    "restart_keeps_the_work_folder": _FILES,
    "temporary_work_folder_is_removed_on_stop": _FILES,
    "missing_work_folder_raises_cellblock_error": _FILES,
    "output_keeps_the_order_of_stdout_and_stderr": _STREAMS,
    "output_order_is_kept_for_shell_programs": _STREAMS,
    "output_order_is_kept_after_much_output_on_one_stream": _STREAMS,
    "output_of_child_processes_is_kept": _STREAMS,
}
NOT_CHECKED = {"output_is_streamed_while_the_block_runs": "it would wait for the time limit"}
_FAILURES = (AssertionError, OSError, TypeError, ValueError)


@pytest.fixture(scope="module")
def target() -> Iterator[ConformanceTarget]:
    with running_pool() as pool, pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_TMPDIR", tempfile.gettempdir())
        options = {"pool_management_endpoint": pool.url, "credential": "token"}
        yield ConformanceTarget(FACTORY, options)


CASES = contract_cases(
    ConformanceTarget(FACTORY), DIFFERENCES, left_out=NOT_CHECKED, raises=_FAILURES
)


@pytest.mark.parametrize("name", CASES)
async def test_executor_meets_the_contract(name: str, target: ConformanceTarget) -> None:
    with skipping():
        await CHECKS[name](target)
