"""Every executor meets the contract."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from cellblock.executors.base import CodeExecutor
from cellblock.testing.conformance import CHECKS, EXECUTORS, ConformanceTarget
from tests.containers import docker_engine, podman_engine
from tests.executors.jupyter import kernels
from tests.executors.programs import run_as_plain_user, run_python
from tests.executors.session import session_image
from tests.executors.shared_executor import CHEAP, SharedExecutorTarget, contract_cases, skipping

pytestmark = pytest.mark.depends_on_user
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
# Maps executor and check to the reason why the check must fail.
DIFFERENCES = {
    "landlock": {
        "threads_and_processes_work": "no sockets and no /dev/shm, which multiprocessing needs"
    },
    "jupyter": kernels.DIFFERENCES,
}
LEFT_OUT = {"jupyter": kernels.UNRELIABLE}
# They start many executors, or use much memory.
SLOW = {
    "jupyter": [
        "large_block_runs",
        "concurrent_executors_get_their_own_results",
        "session_recovers_from_every_kind_of_crash",
    ],
    "podman": ["several_event_loops_can_share_an_executor"],
}


MARKS = {
    "docker": pytest.mark.engine,
    "docker-session": pytest.mark.engine,
    "podman": pytest.mark.engine,
    "jupyter": pytest.mark.kernel,
}
# Their executors share a server and run each check in each tier. Others share an executor.
FULL = {"sandbox", "session"}


@pytest.fixture(autouse=True, scope="module")
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        kernels.install_kernel_specs(patch, tmp_path_factory.mktemp("jupyter"))
        yield
        for started in (*_shared.values(), *_kept.values()):
            asyncio.run(started.stop())
        _shared.clear()
        _kept.clear()


_shared: dict[str, SharedExecutorTarget] = {}
_kept: dict[str, CodeExecutor] = {}


def shared_target(subject: str, image: str | None) -> SharedExecutorTarget:
    """Return the target of a subject whose executors take long to start."""
    if subject not in _shared:
        options = {"image": image} if image else SUBJECTS[subject].options
        _shared[subject] = SharedExecutorTarget(SUBJECTS[subject].factory, options)
    return _shared[subject]


async def keep_server(subject: str) -> None:
    """Keep the server of a subject: starting one takes most of the time of a check.

    Executors with the default options join it, as they do in programs that have several. The
    others start servers of their own.
    """
    if subject not in _kept:
        _kept[subject] = SUBJECTS[subject].create()
        await _kept[subject].start()


DEFAULT_TIER: dict[str, Collection[str]] = {**dict.fromkeys(MARKS, ["output"]), "podman": ()}


def cases() -> Iterator[object]:
    for subject, target in SUBJECTS.items():
        found = contract_cases(
            target,
            DIFFERENCES.get(subject, {}),
            left_out=LEFT_OUT.get(subject, ()),
            slow=SLOW.get(subject, ()),
            modules=None if subject in FULL else DEFAULT_TIER.get(subject, CHEAP),
        )
        marks = [MARKS[subject]] if subject in MARKS else []
        for case in found:
            (name,) = case.values
            yield pytest.param(subject, name, marks=[*case.marks, *marks], id=f"{subject}-{name}")


@pytest.mark.parametrize(("subject", "name"), [*cases()])
async def test_executor_meets_the_contract(
    subject: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # kernels without a work_dir run in the current folder
    image = IMAGES[subject](monkeypatch) if subject in IMAGES else None
    with skipping():
        if subject in FULL:
            await keep_server(subject)
            await CHECKS[name](SUBJECTS[subject])
        else:
            await shared_target(subject, image).run_check(name)


@pytest.mark.parametrize("name", ["sandbox", pytest.param("session", marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_the_command_checks_an_executor_without_root(name: str) -> None:
    done = run_as_plain_user(
        "-m", "cellblock.testing.conformance", name, "--only", "work_folder_is"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^ok .*work_folder", done.stdout, re.M)) == 3, done.stdout


def test_the_command_lists_the_executors_it_can_check() -> None:
    done = run_python("-m", "cellblock.testing.conformance", "nonsense")
    assert done.returncode == 2
    assert "sandbox" in done.stderr


def test_a_broken_executor_fails_the_suite() -> None:
    done = run_python(
        "-m",
        "cellblock.testing.conformance",
        "tests.testing.broken_executor:BrokenExecutor",
        "--only",
        "success",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED    success_has_exit_code_zero" in done.stdout
