"""What a policy shows inside, and that nothing else comes in or goes out that way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import BackendError, Mount, Policy
from tests.plain_user import command
from tests.sandbox.probes import MARK, done, said, sandbox

FOLDER = "/data"
TARGETS = [
    FOLDER,
    "/tmp/given",
    "/tmp/deep/er/given",
    "/dev/shm/given",
    "/workspace/given",
    "/home/cell/given",
    None,
]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text(MARK)
    (folder / "private").write_text(MARK)
    (folder / "private").chmod(0o600)
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_given_to_read_can_be_read_and_not_changed(target: str | None, given: Path) -> None:
    inside = target or str(given)
    with sandbox(policy=Policy(read_only=(Mount(str(given), target),))) as executor:
        for _ in range(4):  # in other cells, and again in the same ones
            assert done(executor, f"print(open('{inside}/private').read())") == MARK
        for attempt in (
            "open(f'{top}/file', 'a')",
            "open(f'{top}/inner/made', 'w')",
            "os.remove(f'{top}/file')",
        ):
            probe = f"import os; top = {inside!r}; {attempt}; print({MARK!r})"
            assert MARK not in said(executor, probe).splitlines(), attempt
    with sandbox(policy=Policy(read_write=(Mount(str(given), target),))) as executor:
        done(executor, f"open('{inside}/file', 'a').write('!'); open('{inside}/inner/made', 'w')")
    assert (given / "file").read_text() == f"{MARK}!"
    made = (given / "inner" / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.geteuid(), os.getegid())


@pytest.mark.parametrize(
    "target", ["/data.txt", "/tmp/data.txt", "/workspace/data.txt", "/etc/my.conf"]
)
def test_a_single_file_can_be_given(target: str, given: Path) -> None:
    with sandbox(policy=Policy(read_only=(Mount(str(given / "file"), target),))) as executor:
        assert done(executor, f"print(open({target!r}).read())") == MARK
        assert MARK not in said(executor, f"open({target!r}, 'a'); print({MARK!r})").splitlines()


def test_a_given_folder_makes_no_set_user_id_program(given: Path) -> None:
    with sandbox(policy=Policy(read_write=(Mount(str(given), FOLDER),))) as executor:
        said(executor, f"import os; os.chmod('{FOLDER}/file', 0o4755)")
    assert (given / "file").stat().st_mode & 0o7000 == 0


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    executor = sandbox(policy=Policy(read_only=(Mount(str(tmp_path / "none")),)))
    with pytest.raises(BackendError, match="none, which does not exist"):
        executor.start()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Give a folder that is not below /tmp, over which the sandbox is built."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "link", ["/workspace/{name}", "../..{folder}", "{folder}", "/proc/1/root{folder}"]
)
def test_a_link_in_the_work_folder_does_not_move_a_mount_out(
    link: str, given: Path, elsewhere: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "data").symlink_to(link.format(folder=elsewhere, name=elsewhere.name))
    mounts = (
        Mount(str(given), "/workspace/data/folder"),
        Mount(str(given / "file"), "/workspace/data/file"),
    )
    executor = sandbox(work, policy=Policy(read_only=mounts))
    try:
        executor.start()
    except BackendError:
        pass
    else:
        executor.stop()
    assert list(elsewhere.iterdir()) == []
    assert sorted(entry.name for entry in work.iterdir()) in (
        ["data"],
        sorted(["data", elsewhere.name]),
    )


# What the machine mounts later comes into every mount that is still tied to the machine's.
TIES = """
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor
assert "shared:" in open("/proc/self/mountinfo").read()
with SandboxCommandLineCodeExecutor() as executor:
    print(executor.execute_code_blocks([CodeBlock("print(open('/proc/self/mountinfo').read())", "python")]).output)
"""


def test_no_mount_is_tied_to_the_machine() -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounts that are shared, for a start, need root and unshare")
    path = os.pathsep.join(filter(None, sys.path))
    ways = [([sys.executable, "-c", TIES], {**os.environ, "PYTHONPATH": path}), command("-c", TIES)]
    for argv, environment in filter(None, ways):
        shared = ["unshare", "--mount", "--propagation", "shared", *argv]
        seen = subprocess.run(
            shared, env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        assert seen.returncode == 0, seen.stderr
        assert " /workspace " in seen.stdout
        assert "master:" not in seen.stdout
        assert "shared:" not in seen.stdout


def test_nothing_of_the_machine_is_mounted_in_a_way_that_changes() -> None:
    with sandbox() as executor:
        lines = done(executor, "print(open('/proc/self/mountinfo').read())").splitlines()
    for line in lines:
        fields, _, _ = line.partition(" - ")
        place, rights, *propagation = fields.split()[4:]
        assert propagation == [], line
        assert "nosuid" in rights, line
        writable = place in ("/workspace", "/home/cell", "/opt/env", "/tmp", "/dev/shm", "/proc")
        assert writable or place.startswith("/dev/") or "ro" in rights.split(","), line


def test_the_environment_is_what_the_policy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_TEST_MARK", MARK)
    list_all = "import os, json; print(json.dumps(sorted(os.environ)))"
    given = {"TOKEN": "t=1 \n2", "PATH": "/usr/bin:/bin", "LD_BIND_NOW": "1"}
    with sandbox(policy=Policy(environment=given)) as executor:
        code = "import os; print(repr(os.environ['TOKEN']), os.environ['PATH'], os.environ.pop('LD_BIND_NOW'))"
        assert done(executor, code) == "'t=1 \\n2' /usr/bin:/bin 1"
        assert done(executor, 'echo "$PATH"', "sh") == "/usr/bin:/bin"
        named = done(executor, list_all)
    with sandbox() as executor:
        plain = done(executor, list_all)
    assert named.replace('"TOKEN", ', "").replace('"LD_BIND_NOW", ', "") == plain
    assert plain == '["HOME", "LANG", "PATH", "PYTHONUNBUFFERED", "USER", "VIRTUAL_ENV"]'
