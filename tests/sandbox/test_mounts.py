"""What a policy mounts in the sandbox, and that nothing else enters or leaves that way."""

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
from tests.plain_user import unprivileged_command
from tests.sandbox.probes import MARK, checked_output, output_of, sandbox

pytestmark = pytest.mark.depends_on_user
FOLDER = "/data"
TARGETS = [
    *(FOLDER, "/tmp/given", "/tmp/deep/er/given", "/dev/shm/given"),
    *("/workspace/given", "/home/cell/given", None),
]
FILE_TARGETS = ["/data.txt", "/tmp/data.txt", "/workspace/data.txt", "/etc/my.conf"]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text(MARK)
    (folder / "private").write_text(MARK)
    (folder / "private").chmod(0o600)
    return folder


def test_read_only_mounts_can_be_read_but_not_changed(given: Path) -> None:
    mounts = [Mount(str(given), target) for target in TARGETS]
    folders = [target or str(given) for target in TARGETS]
    attempts = ("open(f'{top}/file', 'a')", "open(f'{top}/inner/made', 'w')")
    with sandbox(policy=Policy(read_only=mounts)) as executor:
        code = f"for top in {folders}: print(open(top + '/private').read())"
        for _ in range(4):  # in several cells, and again in the same ones
            assert checked_output(executor, code).split() == [MARK] * len(folders)
        for attempt in (*attempts, "os.remove(f'{top}/file')"):
            for top in folders:
                probe = f"import os; top = {top!r}; {attempt}; print({MARK!r})"
                assert MARK not in output_of(executor, probe).splitlines(), (top, attempt)
    with sandbox(policy=Policy(read_write=mounts)) as executor:
        code = f"""
for number, top in enumerate({folders}):
    open(f'{{top}}/file', 'a').write('!')
    open(f'{{top}}/inner/made{{number}}', 'w')
"""
        checked_output(executor, code)
    assert (given / "file").read_text() == MARK + "!" * len(folders)
    made = [path.stat() for path in (given / "inner").iterdir()]
    assert [(one.st_uid, one.st_gid) for one in made] == [(os.geteuid(), os.getegid())] * 7


def test_single_files_can_be_mounted(given: Path) -> None:
    mounts = [Mount(str(given / "file"), target) for target in FILE_TARGETS]
    with sandbox(policy=Policy(read_only=mounts)) as executor:
        for target in FILE_TARGETS:
            assert checked_output(executor, f"print(open({target!r}).read())") == MARK
            writing = f"open({target!r}, 'a'); print({MARK!r})"
            assert MARK not in output_of(executor, writing).splitlines(), target


def test_block_cannot_set_user_id_bits_in_a_mounted_folder(given: Path) -> None:
    with sandbox(policy=Policy(read_write=(Mount(str(given), FOLDER),))) as executor:
        output_of(executor, f"import os; os.chmod('{FOLDER}/file', 0o4755)")
    assert (given / "file").stat().st_mode & 0o7000 == 0


def test_missing_path_in_the_policy_is_an_error(tmp_path: Path) -> None:
    executor = sandbox(policy=Policy(read_only=(Mount(str(tmp_path / "none")),)))
    with pytest.raises(BackendError, match="none, which does not exist"):
        executor.start()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Yield a folder that is not below /tmp, where the root of the sandbox is mounted."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "link", ["/workspace/{name}", "../..{folder}", "{folder}", "/proc/1/root{folder}"]
)
def test_symbolic_link_in_the_work_folder_does_not_move_a_mount_out(
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


# A mount that still receives propagation would show later mounts of the host.
PRINT_MOUNTS = """
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor
assert "shared:" in open("/proc/self/mountinfo").read()
with SandboxCommandLineCodeExecutor() as executor:
    block = CodeBlock("print(open('/proc/self/mountinfo').read())", "python")
    print(executor.execute_code_blocks([block]).output)
"""


@pytest.mark.slow
def test_no_mount_receives_later_mounts_of_the_host() -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to start with shared mounts")
    path = os.pathsep.join(filter(None, sys.path))
    commands = [
        ([sys.executable, "-c", PRINT_MOUNTS], {**os.environ, "PYTHONPATH": path}),
        unprivileged_command("-c", PRINT_MOUNTS),
    ]
    for argv, environment in filter(None, commands):
        shared = ["unshare", "--mount", "--propagation", "shared", *argv]
        seen = subprocess.run(
            shared, env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        assert seen.returncode == 0, seen.stderr
        assert " /workspace " in seen.stdout
        assert "master:" not in seen.stdout
        assert "shared:" not in seen.stdout


def test_mounts_are_private_nosuid_and_read_only() -> None:
    with sandbox() as executor:
        lines = checked_output(executor, "print(open('/proc/self/mountinfo').read())").splitlines()
    for line in lines:
        fields, _, _ = line.partition(" - ")
        target, attributes, *propagation = fields.split()[4:]
        assert propagation == [], line
        assert "nosuid" in attributes, line
        writable = target in ("/workspace", "/home/cell", "/opt/env", "/tmp", "/dev/shm", "/proc")
        assert writable or target.startswith("/dev/") or "ro" in attributes.split(","), line


def test_environment_contains_only_what_the_policy_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_TEST_MARK", MARK)
    list_all = "import os, json; print(json.dumps(sorted(os.environ)))"
    given = {"TOKEN": "t=1 \n2", "PATH": "/usr/bin:/bin", "LD_BIND_NOW": "1"}
    with sandbox(policy=Policy(environment=given)) as executor:
        code = (
            "from os import environ as env\n"
            "print(repr(env['TOKEN']), env['PATH'], env.pop('LD_BIND_NOW'))"
        )
        assert checked_output(executor, code) == "'t=1 \\n2' /usr/bin:/bin 1"
        assert checked_output(executor, 'echo "$PATH"', "sh") == "/usr/bin:/bin"
        named = checked_output(executor, list_all)
    with sandbox() as executor:
        plain = checked_output(executor, list_all)
    assert named.replace('"TOKEN", ', "").replace('"LD_BIND_NOW", ', "") == plain
    assert plain == '["HOME", "LANG", "PATH", "PYTHONUNBUFFERED", "USER", "VIRTUAL_ENV"]'
