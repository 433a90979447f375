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
from probes import MARK, done, said, sandbox

from cellblock import Mount, PlaceError, Policy

FOLDER = "/data"
TARGETS = [FOLDER, "/tmp/given", "/tmp/deep/er/given", "/dev/shm/given", "/workspace/given", "/home/cell/given", None]


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
        for attempt in ("open(f'{top}/file', 'a')", "open(f'{top}/inner/made', 'w')", "os.remove(f'{top}/file')"):
            probe = f"import os; top = {inside!r}; {attempt}; print({MARK!r})"
            assert MARK not in said(executor, probe).splitlines(), attempt
    with sandbox(policy=Policy(read_write=(Mount(str(given), target),))) as executor:
        done(executor, f"open('{inside}/file', 'a').write('!'); open('{inside}/inner/made', 'w')")
    assert (given / "file").read_text() == f"{MARK}!"
    made = (given / "inner" / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.geteuid(), os.getegid())


@pytest.mark.parametrize("target", ["/data.txt", "/tmp/data.txt", "/workspace/data.txt", "/etc/my.conf"])
def test_a_single_file_can_be_given(target: str, given: Path) -> None:
    with sandbox(policy=Policy(read_only=(Mount(str(given / "file"), target),))) as executor:
        assert done(executor, f"print(open({target!r}).read())") == MARK
        assert MARK not in said(executor, f"open({target!r}, 'a'); print({MARK!r})")


def test_a_given_folder_makes_no_set_user_id_program(given: Path) -> None:
    with sandbox(policy=Policy(read_write=(Mount(str(given), FOLDER),))) as executor:
        said(executor, f"import os; os.chmod('{FOLDER}/file', 0o4755)")
    assert (given / "file").stat().st_mode & 0o7000 == 0


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    executor = sandbox(policy=Policy(read_only=(Mount(str(tmp_path / "none")),)))
    with pytest.raises(PlaceError, match="none, which does not exist"):
        executor.start()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Give a folder that is not below /tmp, over which the sandbox is built."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("link", ["/workspace/{name}", "../..{folder}", "{folder}", "/proc/1/root{folder}"])
def test_a_link_in_the_work_folder_does_not_move_a_mount_out(
    link: str, given: Path, elsewhere: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "data").symlink_to(link.format(folder=elsewhere, name=elsewhere.name))
    mounts = (Mount(str(given), "/workspace/data/folder"), Mount(str(given / "file"), "/workspace/data/file"))
    executor = sandbox(work, policy=Policy(read_only=mounts))
    try:
        executor.start()
    except PlaceError:
        pass
    else:
        executor.stop()
    assert list(elsewhere.iterdir()) == []
    assert sorted(entry.name for entry in work.iterdir()) in (["data"], sorted(["data", elsewhere.name]))


# In mounts of its own, which are shared as a machine's are: what is mounted later below a given folder.
LATER = """
import subprocess, sys
from cellblock import CodeBlock, Policy
from cellblock.sandbox import mounts
from cellblock.sync import SandboxCommandLineCodeExecutor
folder = sys.argv[1]
def run(executor, code):
    return executor.execute_code_blocks([CodeBlock(code, "python")]).output
with SandboxCommandLineCodeExecutor(policy=Policy(read_only=(folder,))) as executor:
    assert "later" not in run(executor, f"import os; print(os.listdir({folder!r}))")
    subprocess.run(["mount", "-t", "tmpfs", "later", folder], check=True)
    try:
        open(f"{folder}/later", "w").close()
        print(run(executor, f"import os; print(os.listdir({folder!r}), open('/proc/self/mountinfo').read())"))
    finally:
        subprocess.run(["umount", folder], check=True)
"""


def test_what_is_mounted_later_does_not_come_in(given: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounting needs root and unshare")
    (given / "file").unlink()
    path = os.pathsep.join(filter(None, sys.path))
    argv = ["unshare", "--mount", "--propagation", "shared", sys.executable, "-c", LATER, str(given)]
    made = subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "'inner'" in made.stdout
    assert "later" not in made.stdout
    assert "master:" not in made.stdout
    assert "shared:" not in made.stdout


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
    with sandbox(policy=Policy(environment={"TOKEN": "t=1 \n2", "PATH": "/usr/bin:/bin"})) as executor:
        assert done(executor, "import os; print(repr(os.environ['TOKEN']), os.environ['PATH'])") == "'t=1 \\n2' /usr/bin:/bin"
        assert done(executor, 'echo "$PATH"', "sh") == "/usr/bin:/bin"
        named = done(executor, list_all)
    with sandbox() as executor:
        plain = done(executor, list_all)
    assert named.replace('"TOKEN", ', "") == plain
    assert plain == '["HOME", "LANG", "PATH", "PYTHONUNBUFFERED", "USER", "VIRTUAL_ENV"]'
