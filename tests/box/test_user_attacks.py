"""Root of a box attacks what is outside of it, and the box; the box's user attacks root."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock import Limits, Policy, Sandbox, UserUnsupported
from tests.executors.session.test_box_attacks import ALL_OTHERS, OWN_CHILD, PROBE
from tests.sandbox.images.small_root import make_root
from tests.suite.tiers import exhaustive

# Prints what root can do with all rights in namespaces of its own.
ATTEMPTS = """
import ctypes, os, socket, tempfile
libc = ctypes.CDLL(None, use_errno=True)
file = tempfile.NamedTemporaryFile(delete=False).name
def attempt(name, call):
    try:
        if (call() or 0) >= 0: print(name)
    except OSError:
        pass
def write_setting():
    with open("/proc/sys/kernel/shmmax", "w") as setting:
        setting.write("1000000")
attempt("unshare", lambda: libc.unshare(0x02000000))
attempt("chroot", lambda: os.chroot("/"))
attempt("host name", lambda: socket.sethostname("evil"))
attempt("setting", write_setting)
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).detach())
attempt("set-user-id", lambda: os.chmod(file, 0o4755))
attempt("file capability", lambda: os.setxattr(
    file, "security.capability", bytes.fromhex("0100000200000400000000000000000000000000")))
attempt("trace", lambda: libc.ptrace(0, 0, 0, 0))
attempt("bounding set", lambda: libc.prctl(24, 0))
attempt("score", lambda: open("/proc/1/oom_score_adj", "w").close())
attempt("mount", lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
"""
ALL_ATTEMPTS = [
    "unshare", "chroot", "host name", "setting", "raw socket", "set-user-id", "file capability",
    "trace", "bounding set", "score", "mount",
]  # fmt: skip
NAMESPACES = ["--user", "--map-root-user", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork"]

ENTER = """
import ctypes, os
try:
    descriptor = os.open("/proc/{0}/ns/user", os.O_RDONLY)
    print(ctypes.CDLL(None).setns(descriptor, 0))
except OSError: pass
"""
FORKS = """
import os, signal
count, (reader, writer) = 0, os.pipe()
for user in range(2000, 2200):
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        os.setuid(user)
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    count += 1
print(count)
"""

# Each writes more than a limit allows, where the machine's plain user cannot look.
MORE_BYTES = """
import asyncio
import os
with open("/workspace/closed/in/file", "wb") as file:
    for _ in range(300):
        file.write(bytes(1 << 20))
"""
REMOVED_FILE = """
import asyncio
import os
with open("/workspace/file", "wb") as file:
    os.unlink("/workspace/file")
    for _ in range(300):
        file.write(bytes(1 << 20))
"""
MORE_FILES = """
for number in range(20_000):
    open(f"/workspace/closed/in/{number}", "w").close()
"""
UNTIL_KILLED = "import time; time.sleep(600)"


pytestmark = [pytest.mark.depends_on_user, pytest.mark.usefixtures("needs_users")]


async def python(box: Sandbox, code: str, user: str | None) -> str:
    result = await box.exec(["python3", "-c", code], user=user)
    assert result.exit_code == 0, result.stderr_text
    return result.stdout_text


async def test_root_cannot_change_the_system(box: Sandbox) -> None:
    argv = ["unshare", *NAMESPACES, "--mount-proc", sys.executable, "-c", ATTEMPTS]
    possible = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    assert possible.splitlines() == ALL_ATTEMPTS, "the attack does not work where it could"
    assert await python(box, ATTEMPTS, "root") == ""


async def test_root_has_few_rights_and_others_have_none(box: Sandbox) -> None:
    show = ["grep", "-E", "^(Cap(Prm|Bnd)|NoNewPrivs|Seccomp):", "/proc/self/status"]
    for user, mask in (("root", "eb"), ("5", "0")):
        lines = (await box.exec(show, user=user)).stdout_text.split()
        rights = {lines[index]: lines[index + 1] for index in range(0, len(lines), 2)}
        assert {rights["CapPrm:"].lstrip("0"), rights["CapBnd:"].lstrip("0")} == {mask.strip("0")}
        assert (rights["NoNewPrivs:"], rights["Seccomp:"]) == ("1", "2")


async def test_root_cannot_look_into_processes_of_others(box: Sandbox) -> None:
    """They are the first process, those that start its commands, and the live Python."""

    await box.run_code("kept = 41")
    inside = await python(box, PROBE + OWN_CHILD, "root")
    assert {"read mem", "list fd"} <= {*inside.split("\n")}, "the attack does not work"
    async with box.shell() as shell:
        assert (await shell.run("sleep 1000 & echo on")).stdout_text == "on\n"
        assert await python(box, PROBE + ALL_OTHERS, "root") == ""
    for change in ("os.setuid(1000)", "os.setresuid(1000, 1000, 0)"):
        assert await python(box, PROBE + f"{change}\n" + ALL_OTHERS, "root") == ""


async def test_the_user_of_the_box_cannot_become_root(box: Sandbox) -> None:
    process = await box.spawn(["sleep", "1000"], user="root")
    own = await python(box, PROBE + f"probe({process.pid})", "root")
    assert "read mem" in own, "the attack does not work where it could"
    attack = PROBE + f"probe({process.pid})\n" + ENTER.format(process.pid)
    assert await python(box, attack, None) == ""
    assert await python(box, attack, "5") == ""
    kill = await box.exec(["kill", "-9", str(process.pid)])
    assert kill.exit_code == 1
    result = await box.run_code(attack)
    assert (result.exit_code, result.output) == (0, "")
    assert process.poll() is None
    await process.kill()
    for path in ("/etc/passwd", "/root/x", "/etc/security/x", "/home/x"):
        assert (await box.exec(["touch", path])).exit_code == 1


async def test_root_runs_no_programs_of_the_user_of_the_box(box: Sandbox) -> None:
    """They would run with all rights of root. `exec` looks `sh` and `id` up in `PATH`."""

    plant = "cd /opt/env/bin; for name in sh id bash; do printf '#!/bin/sh\necho planted' >$name; "
    assert (await box.exec(f"{plant} chmod 755 $name; done")).exit_code == 0
    theirs = {"PATH": "/opt/env/bin:/usr/bin:/bin"}
    result = await box.exec(["id", "-u"], user="root", env=theirs)
    assert result.stdout == b"planted\n", "the attack does not work where it could"
    for user, expected in (("root", b"0\n"), ("5", b"5\n")):
        assert (await box.exec("id -u", user=user)).stdout == expected
        assert (await box.exec(["id", "-u"], user=user)).stdout == expected
        async with box.shell(user=user) as shell:
            assert (await shell.run("id -u")).stdout == expected
        show = await box.exec("env; command -v python3", user=user)
        assert (show.exit_code, b"/opt/env" in show.stdout) == (0, False)
    assert (await box.exec(["env"], user="cell")).stdout_text.count("/opt/env") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="a plain user's images belong to the box's user")
async def test_a_root_file_system_of_root_is_not_the_users(tmp_path: Path) -> None:
    """Who can write to `/` or `/etc` decides which programs root runs."""
    root = make_root(tmp_path / "root")
    async with Sandbox(users=True, root=root) as box:
        for attack in (
            "mv /bin /bin2",
            "mv /etc /etc2",
            "mkdir /new",
            "echo 'root:x:1000:1000::/:/bin/sh' > /etc/passwd",
            "touch /home/x",
        ):
            assert (await box.exec(attack)).exit_code != 0
        assert (await box.exec("touch /etc/x && mkdir /new", user="root")).exit_code == 0


async def test_root_changes_the_names_of_its_own_box_only(tmp_path: Path) -> None:
    """An image is from strangers: its links must not lead what is written to other files."""
    given = tmp_path / "given"
    given.mkdir()
    names = [Path("/etc/hosts"), Path("/etc/resolv.conf")]
    if missing := [path for path in names if not path.exists()]:
        pytest.skip(f"this machine has no {missing[0]}")
    before = [(path.read_bytes(), path.stat()) for path in names]
    roots = [None, *(make_root(tmp_path / name) for name in ("links", "etc"))]
    for name in ("hosts", "resolv.conf"):
        (tmp_path / "links" / "etc" / name).symlink_to(given / name)
    shutil.move(tmp_path / "etc" / "etc", tmp_path / "etc" / "other")
    (tmp_path / "etc" / "etc").symlink_to(given)
    policy = Policy(network="host", read_write=[str(given)])
    change = """
        set -e
        for name in /etc/hosts /etc/resolv.conf
        do echo 10.9.8.7 mine >> $name; cp $name $name.new; mv $name.new $name; done"""
    show, expected = ["cat", *map(str, names)], b"".join(data for data, _ in before)
    for root in roots:
        async with Sandbox(users=True, root=root, policy=policy) as box:
            assert (await box.exec(show)).stdout == expected
            if root is None or os.geteuid() == 0:
                assert (await box.exec(change)).exit_code != 0, "the user of the box is not root"
            done = await box.exec(change, user="root")
            assert done.exit_code == 0, done.stderr_text
            assert (await box.exec(show)).stdout.count(b"10.9.8.7 mine\n") == 2
        assert not list(given.iterdir())
    for path, (data, status) in zip(names, before, strict=True):
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (data, status.st_mtime_ns)


async def test_a_checkpoint_gives_the_user_no_file_of_another_folder(tmp_path: Path) -> None:
    policy = Policy(read_write=[str(tmp_path / "given")])
    (tmp_path / "given").mkdir(mode=0o777)
    folders = ("/workspace", "/etc", str(tmp_path / "given"), "/home/cell")
    leave = "umask 077; for folder in {}; do echo own > $folder/secret; done"
    root = make_root(tmp_path / "root")
    async with Sandbox(users=True, root=root, policy=policy) as box:
        done = await box.exec(leave.format(" ".join(folders)), user="root")
        assert done.exit_code == 0, done.stderr_text
        checkpoint = await box.checkpoint()
        await box.restore(checkpoint)
        readable = [
            folder
            for folder in folders
            if (await box.exec(["cat", f"{folder}/secret"])).exit_code == 0
        ]
        assert readable == ["/workspace"], "it has a copy of that, which is the user's"


async def test_root_cannot_read_descriptors_of_the_first_process(box: Sandbox) -> None:
    """It looks up the users. Among its descriptors are the pipes with the output of commands."""
    line = "eve:x:1234:1234::/stolen:/bin/sh"
    # It prints until the file exists, then how many lines that were.
    command = f"""
        until [ -e /tmp/end ]; do yes {line} | head -n 1000; n=$((n + 1000)); sleep 0.01; done
        echo $n >&2"""
    async with await box.spawn(command) as process:
        for number in range(3, 40):
            link = ["ln", "-sfn", f"/proc/self/fd/{number}", "/etc/passwd"]
            assert (await box.exec(link, user="root")).exit_code == 0
            with pytest.raises(UserUnsupported):
                await box.exec(["true"], user="eve")
        assert (await box.exec(["touch", "/tmp/end"])).exit_code == 0
        result = await process.wait()
    assert result.stdout.count(b"\n") == int(result.stderr) > 0


async def test_signals_of_root_do_not_end_the_box(box: Sandbox) -> None:
    await box.run_code("kept = 41")
    for name in ("KILL", "STOP"):
        every = f"for n in $(seq 1 99); do [ $n = $$ ] || kill -{name} $n; done 2>&1; true"
        # Once it runs: it also kills the process that reports that.
        async with await box.spawn(f"read go; {every}", user="root") as process:
            await process.send(b"go\n")
            assert (await process.wait()).exit_code in (0, 137)
        assert (await box.exec(["echo", "on"], user="root")).stdout == b"on\n"
        await box.files.write("/root/f", name, user="root")
        assert (await box.exec(["echo", "on"])).stdout == b"on\n"
        assert (await box.run_code("print(kept)")).output == "41\n"
    result = await box.exec("kill -9 -1; kill -9 0", user="root")
    assert result.exit_code == 137


async def test_root_has_no_rights_over_files_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("given")
    (tmp_path / "mine").chmod(0)
    (tmp_path / "theirs").write_text("secret")
    (tmp_path / "theirs").chmod(0)
    if os.geteuid() == 0:
        os.chown(tmp_path / "theirs", 4321, 4321)
    policy = Policy(read_write=[str(tmp_path)])
    async with Sandbox(users=True, policy=policy) as box:
        mine = await box.exec(["cat", str(tmp_path / "mine")], user="root")
        assert mine.stdout == b"given", "the attack does not work where it could"
        if os.geteuid() == 0:
            theirs = tmp_path / "theirs"
            for command in ("cat {}", "chown 0 {}", "chmod 777 {}", "echo > {}"):
                result = await box.exec(command.format(theirs), user="root")
                assert (result.exit_code != 0, result.stdout) == (True, b"")
        for command in ("echo > /usr/bin/env", "rm /usr/bin/env", "chown 5 /usr/bin/env"):
            assert (await box.exec(command, user="root")).exit_code != 0


async def test_users_of_root_do_not_multiply_the_limit_of_processes() -> None:
    async with Sandbox(users=True, limits=Limits(processes=30)) as box:
        count = int(await python(box, FORKS, "root"))
        assert 0 < count <= 30


@pytest.mark.parametrize("user", exhaustive(["5", "root"]))
@pytest.mark.parametrize("code", [MORE_BYTES, REMOVED_FILE, MORE_FILES])
async def test_other_users_cannot_hide_what_they_write(code: str, user: str) -> None:
    limits = Limits(written_bytes=64 << 20, files=1000)
    async with Sandbox(users=True, limits=limits) as box:
        for command in (
            "chmod 777 .",
            f"mkdir -m 700 closed; mkdir closed/in; chown -R {user} closed",
        ):
            assert (await box.exec(command, user="root")).exit_code == 0
        argv = ["python3", "-c", code + UNTIL_KILLED]
        result = await box.exec(argv, user=user)
        assert result.exit_code == 137, result
