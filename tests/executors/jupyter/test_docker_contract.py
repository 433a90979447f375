"""The conformance checks, run on kernels in containers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import docker_engine
from tests.executors.jupyter import docker_kernels, kernels
from tests.executors.shared_executor import SharedExecutorTarget, contract_cases, skipping

pytestmark = [pytest.mark.engine, pytest.mark.kernel]

TARGET = SharedExecutorTarget("tests.executors.jupyter.docker_kernels:ContainerKernelExecutor")
_OTHERS = "blocks in other languages are not run"
_OUTSIDE = "not visible from outside the container"
DIFFERENCES = {"success_has_exit_code_zero": f"CPU time is {_OUTSIDE}"}
# Checks that are not run. What differs as it does for local kernels is checked there.
LEFT_OUT = {
    **kernels.DIFFERENCES,
    **kernels.UNRELIABLE,
    "output_order_is_kept_for_shell_programs": _OTHERS,
    "fold_of_events_equals_the_result": _OTHERS,
    "each_block_has_its_own_result": _OTHERS,
    "blocks_share_files": _OTHERS,
    "shell_background_job_is_killed": _OTHERS,
    "memory_limit_covers_the_process_tree": "if a child process is killed, the block continues",
    "cpu_time_limit_covers_the_process_tree": _OUTSIDE,
    "written_bytes_limit_is_reported": _OUTSIDE,
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


CASES = contract_cases(TARGET, DIFFERENCES, left_out=LEFT_OUT, modules={"output"})


@pytest.mark.parametrize("name", CASES)
async def test_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with skipping():
        await TARGET.run_check(name)
