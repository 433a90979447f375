"""Owners of files, for rootless engines and engines that remap users, for root and other callers.

No file may be writable by all users.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import plain_user
from tests.containers import docker_engine, rootless_engine
from tests.containers.docker_engine import Engine
from tests.executors.session import session_image
from tests.suite.tiers import exhaustive

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start engines as other users"),
]
ROOT, PLAIN = (0, 0), (plain_user.USER, plain_user.USER)
OTHER = (4242, 4243)
# Run blocks, and print the owners and modes of all files while the container exists.
PROGRAM = """
import asyncio, contextlib, json, os, sys, tempfile
from cellblock import CodeBlock, DockerCommandLineCodeExecutor, DockerSessionCodeExecutor, Limits

def list_files(top):
    found = {}
    for folder, _, files in os.walk(top):
        for name in (".", *files):
            status = os.lstat(os.path.join(folder, name))
            path = os.path.relpath(os.path.join(folder, name), top)
            found[path] = status.st_uid, status.st_gid, status.st_mode
    return found

async def main(options, blocks):
    if "limits" in options:
        options["limits"] = Limits(**options["limits"])
    has_session = options.pop("session", False)
    make = DockerSessionCodeExecutor if has_session else DockerCommandLineCodeExecutor
    async with contextlib.AsyncExitStack() as stack:
        executor = await stack.enter_async_context(make(**options))
        results = [await executor.execute_code_blocks([CodeBlock(*block)]) for block in blocks]
        if has_session:
            await executor.checkpoint()
            [branch] = await executor.fork(1)
            block = CodeBlock("open('of-branch', 'w').close()", "python")
            results.append(await branch.execute_code_blocks([block]))
            stack.push_async_callback(branch.stop)
        report = {
            "work": list_files(executor.work_dir),
            "temporary": list_files(tempfile.gettempdir()),
            "output": "".join(result.output for result in results),
            "outcomes": [result.outcome for result in results],
        }
        print(json.dumps(report))

asyncio.run(main(*map(json.loads, sys.argv[1:])))
"""
CREATE_FILES = [
    [
        "import os; os.makedirs('a/b'); open('a/b/made', 'w').write('x'); "
        "open(os.path.expanduser('~/own'), 'w')",
        "python",
    ],
    ["echo more >> a/b/made && echo new > a/by-shell && cat a/b/made given", "sh"],
]
FORKS = """
import os
try:
    while True:
        os.fork() or os.read(os.pipe()[0], 1)
except BlockingIOError:
    print('no process')
"""
EXPECTED_OUTPUT = "xmore\nfrom outside"


@dataclass
class Report:
    """The output of the program: path -> (owner, group, mode) of work and temporary files."""

    work: dict[str, tuple[int, int, int]]
    temporary: dict[str, tuple[int, int, int]]
    output: str
    outcomes: list[str]

    def owners(self) -> set[tuple[int, int]]:
        """Return the owners of the files in the work folder."""
        return {(user, group) for user, group, _ in self.work.values()}

    def world_writable(self) -> list[str]:
        """Return the paths that all users can write to."""
        temporary = {f"{path} of {{tmp}}": status for path, status in self.temporary.items()}
        return [
            path
            for path, (*_, mode) in {**self.work, **temporary}.items()
            if mode & stat.S_IWOTH and not stat.S_ISSOCK(mode)
        ]


class Caller:
    """A user of an engine, with a work folder."""

    def __init__(self, engine: Engine, folder: Path, owner: tuple[int, int]) -> None:
        self._host, self._folder, self._owner = engine.host, folder, owner
        self.work_dir = self._make_folder("work")
        (self.work_dir / "given").write_text("from outside")
        os.chown(self.work_dir / "given", *owner)

    def _make_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        os.chown(folder, *self._owner)
        return folder

    def run_blocks(self, blocks: Sequence[Sequence[str]], options: Mapping[str, Any]) -> Report:
        """Run blocks as this user, and return the program's report."""
        arguments = ["-c", PROGRAM, json.dumps(options), json.dumps(blocks)]
        if self._owner == ROOT:
            argv, environment = (
                [sys.executable, *arguments],
                {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        elif made := plain_user.unprivileged_command(*arguments):
            argv, environment = made
        else:
            pytest.skip("there is no Python that an unprivileged user can start")
        temporary = self._make_folder("tmp")
        temporary.chmod(0o711)
        environment |= {"DOCKER_HOST": self._host, "TMPDIR": str(temporary)}
        done = subprocess.run(
            argv, env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        temporary.rmdir()  # fails if a file was left behind
        return Report(**json.loads(done.stdout))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that every user can pass through."""
    path = Path(tempfile.mkdtemp(prefix="cellblock-test-caller-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module", params=["podman_engine", "docker_engine"])
def rootless(request: pytest.FixtureRequest, rootless_engines: Callable[[str], Engine]) -> Engine:
    engine = rootless_engines(request.param)
    engine.test_image("python")  # so that no single test pays for it
    return engine


@pytest.fixture(scope="module")
def remapping_engine() -> Iterator[Engine]:
    options = (f"--userns-remap={rootless_engine.USER_NAME}", f"--group={plain_user.USER}")
    with docker_engine.private_engine(
        *options, command_prefix=rootless_engine.subordinate_ids_prefix
    ) as engine:
        engine.test_image("python")
        yield engine


def create_and_read_files(engine: Engine, caller: Caller, **options: Any) -> Report:
    """Create and read files in the caller's work folder, and return the report."""
    report = caller.run_blocks(
        CREATE_FILES,
        {"image": engine.test_image("python"), "work_dir": str(caller.work_dir), **options},
    )
    assert report.output == EXPECTED_OUTPUT
    return report


# rootless engines


@pytest.mark.parametrize("transfer", exhaustive(["bind", "copy"]))
def test_files_belong_to_the_user_of_a_rootless_engine(
    rootless: Engine, folder: Path, transfer: str
) -> None:
    report = create_and_read_files(rootless, Caller(rootless, folder, PLAIN), transfer=transfer)
    assert report.owners() == {PLAIN}
    assert report.world_writable() == []


@pytest.mark.slow
def test_a_rootless_engine_without_control_groups_enforces_limits_itself(
    rootless: Engine, folder: Path
) -> None:
    if not rootless.docker("info", "--format", "{{.CgroupVersion}}").startswith("1"):
        pytest.skip("rootless engines have control groups here, because they are version 2")
    caller = Caller(rootless, folder, PLAIN)
    limits = {"limits": {"memory_bytes": 200 << 20, "processes": 30}}
    options = {"image": rootless.test_image("python"), **limits}
    hungry = caller.run_blocks([["b'x' * (2 << 30)", "python"]], options)
    assert "Out of memory: the limit of 209715200 bytes (memory_bytes)." in hungry.output
    assert caller.run_blocks([[FORKS, "python"]], options).output == "no process\n"
    in_shell = {"image": rootless.test_image("shell"), **limits}
    assert caller.run_blocks([["ulimit -d; ulimit -p", "sh"]], in_shell).output == "204800\n30\n"
    with pytest.raises(AssertionError, match=r"BackendError: .* cannot enforce Limits\.processors"):
        caller.run_blocks([], {**options, "limits": {"processors": 1}})


def test_root_can_use_the_engine_of_another_user(rootless: Engine, folder: Path) -> None:
    blocks = [["open('made', 'w').write('x'); print(open('made').read())", "python"]]
    report = Caller(rootless, folder, ROOT).run_blocks(
        blocks, {"image": rootless.test_image("python")}
    )
    assert report.output == "x\n"
    assert tuple(report.work["made"][:2]) == PLAIN
    assert report.world_writable() == []


# engines that remap users


@pytest.mark.parametrize("transfer", exhaustive(["bind", "copy"]))
@pytest.mark.parametrize("owner", [ROOT, PLAIN])
def test_files_belong_to_the_caller_of_an_engine_that_remaps_users(
    remapping_engine: Engine, folder: Path, owner: tuple[int, int], transfer: str
) -> None:
    report = create_and_read_files(
        remapping_engine, Caller(remapping_engine, folder, owner), transfer=transfer
    )
    assert report.owners() == {owner}
    assert report.world_writable() == []


def test_users_stay_remapped_if_files_are_copied(remapping_engine: Engine, folder: Path) -> None:
    numbers = [["cat /proc/self/uid_map", "sh"]]
    caller = Caller(remapping_engine, folder, ROOT)
    copied = caller.run_blocks(
        numbers, {"image": remapping_engine.test_image("python"), "transfer": "copy"}
    )
    assert copied.output.split()[:2] == ["0", str(rootless_engine.FIRST_SUBORDINATE_ID)]
    mounted = caller.run_blocks(numbers, {"image": remapping_engine.test_image("python")})
    assert mounted.output.split()[:2] == ["0", "0"]


# the shared engine


@pytest.mark.parametrize("owner", [OTHER, pytest.param(ROOT, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("remaps", [False, True])
def test_blocks_run_as_the_owner_of_the_work_folder_if_the_caller_is_root(
    remapping_engine: Engine, folder: Path, owner: tuple[int, int], remaps: bool
) -> None:
    engine = remapping_engine if remaps else docker_engine.shared_engine()
    caller = Caller(engine, folder, ROOT)
    os.chown(caller.work_dir, *owner)
    report = caller.run_blocks(
        [CREATE_FILES[0]], {"image": engine.test_image("python"), "work_dir": str(caller.work_dir)}
    )
    assert {tuple(report.work[path][:2]) for path in (".", "a", "a/b", "a/b/made")} == {owner}
    assert report.world_writable() == []


def test_only_the_caller_can_access_temporary_files(folder: Path) -> None:
    blocks = [["import os; open('made', 'w'); os.mkdir('folder'); print(os.getuid())", "python"]]
    engine = docker_engine.shared_engine()
    report = Caller(engine, folder, ROOT).run_blocks(blocks, {"image": engine.test_image("python")})
    assert report.output == "0\n"
    assert report.world_writable() == []
    assert report.work["."][2] & 0o777 == 0o700


def test_only_the_caller_can_access_branches_and_checkpoints(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = session_image.use_session_image(monkeypatch)
    report = Caller(docker_engine.shared_engine(), folder, ROOT).run_blocks(
        CREATE_FILES[:1], {"image": image, "session": True}
    )
    assert report.outcomes == ["ok", "ok"]
    assert any(path.endswith("of-branch") for path in report.temporary)
    assert any("snapshot-" in path for path in report.temporary)
    assert report.world_writable() == []
