"""Whose files are whose: engines of a plain user, engines that remap users, root and plain callers; nothing is for all."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import plain_user
from tests.containers import docker_engine, rootless_engine
from tests.containers.docker_engine import Engine
from tests.executors.session import session_image

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="root alone starts engines as others, and gives them folders"
    ),
]
ROOT, PLAIN = (0, 0), (plain_user.USER, plain_user.USER)
OTHER = (4242, 4243)
# Has blocks run, and tells whose everything is, and what may be done with it, while the container is there.
PROGRAM = """
import asyncio, contextlib, json, os, sys, tempfile
from cellblock import CodeBlock, DockerCommandLineCodeExecutor, DockerSessionCodeExecutor, Limits

def seen(top):
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
    make = DockerSessionCodeExecutor if options.pop("session", False) else DockerCommandLineCodeExecutor
    async with contextlib.AsyncExitStack() as stack:
        executor = await stack.enter_async_context(make(**options))
        results = [await executor.execute_code_blocks([CodeBlock(*block)]) for block in blocks]
        if make is DockerSessionCodeExecutor:
            await executor.checkpoint()
            [branch] = await executor.fork(1)
            results.append(await branch.execute_code_blocks([CodeBlock("open('of branch', 'w').close()", "python")]))
            stack.push_async_callback(branch.stop)
        told = {"work": seen(executor.work_dir), "temporary": seen(tempfile.gettempdir())}
        told["output"] = "".join(result.output for result in results)
        told["outcomes"] = [result.outcome for result in results]
        print(json.dumps(told))

asyncio.run(main(*map(json.loads, sys.argv[1:])))
"""
MAKES = [
    [
        "import os; os.makedirs('a/b'); open('a/b/made', 'w').write('x'); open(os.path.expanduser('~/own'), 'w')",
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
SAID = "xmore\nfrom outside"


@dataclass
class Told:
    """What the program tells: path -> (owner, group, mode) for the work folder and all that is temporary."""

    work: dict[str, tuple[int, int, int]]
    temporary: dict[str, tuple[int, int, int]]
    output: str
    outcomes: list[str]

    def owners(self) -> set[tuple[int, int]]:
        """Give whose the files of the work folder are."""
        return {(user, group) for user, group, _ in self.work.values()}

    def open_to_all(self) -> list[str]:
        """Name what everybody can write to."""
        paths = {
            **self.work,
            **{f"{path} of {{tmp}}": status for path, status in self.temporary.items()},
        }
        return [
            path
            for path, (*_, mode) in paths.items()
            if mode & stat.S_IWOTH and not stat.S_ISSOCK(mode)
        ]


class Caller:
    """A user of an engine."""

    def __init__(self, where: Engine, folder: Path, owner: tuple[int, int]) -> None:
        self._host, self._folder, self._owner = where.host, folder, owner
        self.work_dir = self._own_folder("work")
        (self.work_dir / "given").write_text("from outside")
        os.chown(self.work_dir / "given", *owner)

    def _own_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        os.chown(folder, *self._owner)
        return folder

    def runs(self, blocks: Sequence[Sequence[str]], options: Mapping[str, Any]) -> Told:
        """Have blocks run as this user."""
        arguments = ["-c", PROGRAM, json.dumps(options), json.dumps(blocks)]
        if self._owner == ROOT:
            argv, environment = (
                [sys.executable, *arguments],
                {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        elif made := plain_user.command(*arguments):
            argv, environment = made
        else:
            pytest.skip("no Python that a user without rights could start")
        temporary = self._own_folder("tmp")
        temporary.chmod(0o711)
        environment |= {"DOCKER_HOST": self._host, "TMPDIR": str(temporary)}
        done = subprocess.run(
            argv, env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        temporary.rmdir()  # nothing may be left in it
        return Told(**json.loads(done.stdout))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that every user can come through."""
    path = Path(tempfile.mkdtemp(prefix="cellblock-test-caller-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module", params=["podman", "docker"])
def plain_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with getattr(rootless_engine, request.param)() as one:
        yield one


@pytest.fixture(scope="module")
def remapping() -> Iterator[Engine]:
    options = (f"--userns-remap={rootless_engine.NAME}", f"--group={plain_user.USER}")
    with docker_engine.own(*options, begin=rootless_engine.with_users) as one:
        one.image("python")
        yield one


def told_of(where: Engine, caller: Caller, **options: Any) -> Told:
    """Have files made in the caller's work folder, and read."""
    told = caller.runs(
        MAKES, {"image": where.image("python"), "work_dir": str(caller.work_dir), **options}
    )
    assert told.output == SAID
    return told


# engines of a plain user


def needs_version_1(where: Engine) -> None:
    if not where.docker("info", "--format", "{{.CgroupVersion}}").startswith("1"):
        pytest.skip("a plain user may have control groups here, which are of version 2")


@pytest.mark.parametrize("transfer", ["bind", "copy"])
def test_a_rootless_engine_leaves_files_to_its_user(
    plain_engine: Engine, folder: Path, transfer: str
) -> None:
    told = told_of(plain_engine, Caller(plain_engine, folder, PLAIN), transfer=transfer)
    assert told.owners() == {PLAIN}
    assert told.open_to_all() == []


def test_a_rootless_engine_without_control_groups_holds_limits_by_rlimits(
    plain_engine: Engine, folder: Path
) -> None:
    needs_version_1(plain_engine)
    hungry = "try:\n    b'x' * (900 << 20)\nexcept MemoryError:\n    print('no memory')"
    options = {
        "image": plain_engine.image("python"),
        "limits": {"memory_bytes": 200 << 20, "processes": 30},
    }
    told = Caller(plain_engine, folder, PLAIN).runs(
        [[hungry, "python"], [FORKS, "python"]], options
    )
    assert told.output == "no memory\nno process\n"


def test_a_rootless_engine_holds_shell_blocks_by_rlimits_too(
    plain_engine: Engine, folder: Path
) -> None:
    needs_version_1(plain_engine)
    options = {
        "image": plain_engine.image("shell"),
        "limits": {"memory_bytes": 200 << 20, "processes": 30},
    }
    told = Caller(plain_engine, folder, PLAIN).runs([["ulimit -d; ulimit -p", "sh"]], options)
    assert told.output == "204800\n30\n"


def test_a_rootless_engine_refuses_what_it_cannot_hold(plain_engine: Engine, folder: Path) -> None:
    needs_version_1(plain_engine)
    options = {"image": plain_engine.image("python"), "limits": {"processors": 1}}
    with pytest.raises(
        AssertionError, match=r"BackendError: Limits\.processors cannot be held by this engine"
    ):
        Caller(plain_engine, folder, PLAIN).runs([], options)


def test_root_can_use_the_engine_of_somebody_else(plain_engine: Engine, folder: Path) -> None:
    blocks = [["open('made', 'w').write('x'); print(open('made').read())", "python"]]
    told = Caller(plain_engine, folder, ROOT).runs(blocks, {"image": plain_engine.image("python")})
    assert told.output == "x\n"
    assert tuple(told.work["made"][:2]) == PLAIN
    assert told.open_to_all() == []


# engines that remap users


@pytest.mark.parametrize("transfer", ["bind", "copy"])
@pytest.mark.parametrize("owner", [ROOT, PLAIN])
def test_an_engine_that_remaps_users_leaves_files_to_the_caller(
    remapping: Engine, folder: Path, owner: tuple[int, int], transfer: str
) -> None:
    told = told_of(remapping, Caller(remapping, folder, owner), transfer=transfer)
    assert told.owners() == {owner}
    assert told.open_to_all() == []


def test_what_is_copied_needs_no_users_of_the_machine(remapping: Engine, folder: Path) -> None:
    numbers = [["cat /proc/self/uid_map", "sh"]]
    caller = Caller(remapping, folder, ROOT)
    copied = caller.runs(numbers, {"image": remapping.image("python"), "transfer": "copy"})
    assert copied.output.split()[:2] == ["0", str(rootless_engine.FIRST_NUMBER)]
    shown = caller.runs(numbers, {"image": remapping.image("python")})
    assert shown.output.split()[:2] == ["0", "0"]


# the engine that there is


@pytest.mark.parametrize("owner", [ROOT, OTHER])
@pytest.mark.parametrize("remaps", [False, True])
def test_root_serves_the_owner_of_the_work_folder(
    remapping: Engine, folder: Path, owner: tuple[int, int], remaps: bool
) -> None:
    where = remapping if remaps else docker_engine.running()
    caller = Caller(where, folder, ROOT)
    os.chown(caller.work_dir, *owner)
    told = caller.runs(
        [MAKES[0]], {"image": where.image("python"), "work_dir": str(caller.work_dir)}
    )
    assert {tuple(told.work[path][:2]) for path in (".", "a", "a/b", "a/b/made")} == {owner}
    assert told.open_to_all() == []


def test_what_is_temporary_is_the_callers_alone(folder: Path) -> None:
    blocks = [["import os; open('made', 'w'); os.mkdir('folder'); print(os.getuid())", "python"]]
    where = docker_engine.running()
    told = Caller(where, folder, ROOT).runs(blocks, {"image": where.image("python")})
    assert told.output == "0\n"
    assert told.open_to_all() == []
    assert told.work["."][2] & 0o777 == 0o700


def test_branches_and_checkpoints_are_the_callers_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = session_image.prepare(monkeypatch)
    told = Caller(docker_engine.running(), folder, ROOT).runs(
        MAKES[:1], {"image": image, "session": True}
    )
    assert told.outcomes == ["ok", "ok"]
    assert any(path.endswith("of branch") for path in told.temporary)
    assert any("snapshot-" in path for path in told.temporary)
    assert told.open_to_all() == []
