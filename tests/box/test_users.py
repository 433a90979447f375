"""Commands and files of a box with several users. An ordinary user runs this file too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from cellblock import CommandResult, Sandbox, SandboxSessionCodeExecutor, UserUnsupported
from cellblock.runtime.messages import MountSpec
from cellblock.runtime.spec import SubIds
from cellblock.sandbox.setup.left_files import LeftFiles
from tests.executors.programs import run_as_plain_user
from tests.sandbox.images.small_root import make_root
from tests.suite.tiers import exhaustive

pytestmark = [pytest.mark.depends_on_user, pytest.mark.usefixtures("needs_users")]


def output(result: CommandResult) -> str:
    assert result.exit_code == 0, result.stderr_text
    return result.stdout_text


def owners(folder: Path) -> set[tuple[int, int]]:
    found = set[tuple[int, int]]()
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            found.add((os.lstat(path).st_uid, os.lstat(path).st_gid))
    return found


async def test_root_makes_a_user_who_has_files_and_groups(box: Sandbox) -> None:
    output(await box.exec("groupadd -g 77 more && useradd -m -G more ann", user="root"))
    said = output(await box.exec("id -un; id -Gn; echo $HOME $USER; pwd", user="ann"))
    assert said == "ann\nann more\n/home/ann ann\n/workspace\n"
    await box.files.write("/home/ann/note", "hers", user="ann")
    found = output(await box.exec("stat -c %U:%G /home/ann/note; su ann -c 'cat ~/note'", user=0))
    assert found == "ann:ann\nhers"
    number = int(output(await box.exec(["id", "-u", "ann"])))
    assert output(await box.exec(["whoami"], user=number)) == "ann\n"
    output(await box.exec("chmod 700 /home/ann", user="ann"))
    with pytest.raises(PermissionError):
        await box.files.read("/home/ann/note")
    output(await box.exec("userdel -r ann", user="root"))
    with pytest.raises(UserUnsupported, match="the box has no user 'ann'"):
        await box.exec(["true"], user="ann")


async def test_the_default_user_stays_what_it_is(box: Sandbox) -> None:
    said = output(await box.exec("id -un; grep CapPrm /proc/self/status; touch /etc/x || true"))
    assert said == "cell\nCapPrm:\t0000000000000000\n"
    for user in ("cell", 1000, "1000"):
        assert output(await box.exec("whoami; grep CapPrm /proc/self/status", user=user)) == said
    found = await box.exec(["stat", "-c", "%U", "/", "/etc", "/tmp", "/var/tmp", "/usr/.."])
    assert {*output(found).split()} == {"root"}
    result = await box.run_code("import os; print(os.getuid())")
    assert result.output == "1000\n"


async def test_all_ways_to_start_a_command_take_a_user(box: Sandbox) -> None:
    process = await box.spawn(["cat"], user="root")
    assert output(await box.exec(["ps", "-o", "user=", "-C", "cat"], user="root")) == "root\n"
    await process.send(b"through")
    await process.close_stdin()
    assert (await process.wait()).stdout == b"through"
    async with box.shell(user="root") as shell:
        assert (await shell.run("cd /root && pwd && whoami")).stdout_text == "/root\nroot\n"
    # What a command has left lives on, and another one of the same user can end it.
    output(await box.exec("setsid sleep 1000 >/dev/null 2>&1 &", user="root"))
    assert len(await box.commands()) == 1
    output(await box.exec("until pkill -x sleep; do sleep 0.01; done", user="root"))
    result = await box.exec("sleep 1000 & sleep 1000", user="root", timeout=0.3)
    assert result.timed_out
    assert await box.commands() == []


async def test_a_user_that_cannot_be_had_is_refused(box: Sandbox) -> None:
    for user in ("nobody", "70000", 70000, 1 << 31):
        for call in (box.exec(["true"], user=user), box.files.list(".", user=user)):
            with pytest.raises(UserUnsupported, match="the box has no user"):
                await call


async def test_hostile_lists_of_users_harm_nothing(box: Sandbox) -> None:
    keep = "cp -p /etc/passwd /tmp/passwd; rm /etc/passwd; "
    for change in (
        "mkfifo /etc/passwd",
        "ln -s /dev/zero /etc/passwd",
        "echo : > /etc/passwd",
        "echo 'cell:x:²:0::/:/bin/sh' > /etc/passwd",
        f"echo 'cell:x:{'9' * 5000}:0::/:/bin/sh' > /etc/passwd",
    ):
        output(await box.exec(keep + change, user="root"))
        with pytest.raises(UserUnsupported):
            await box.exec(["true"], user="cell")
        assert output(await box.exec(["echo", "on"])) == "on\n"
        output(await box.exec("rm /etc/passwd; cp -p /tmp/passwd /etc/passwd", user=0))
    assert output(await box.exec(["whoami"], user="cell")) == "cell\n"


async def test_what_others_leave_belongs_to_the_caller_after_the_end(tmp_path: Path) -> None:
    leave = "mkdir -p a/b; echo 1 > a/b/f; chmod 600 a/b/f; ln -s f a/l; chown 5:6 a; chmod 700 a"
    before = owners(tmp_path)
    async with Sandbox(users=True, work_dir=tmp_path) as box:
        output(await box.exec(leave, user="root"))
        output(await box.exec("touch mine; chown 3 mine; chown 4 .", user="root"))
        assert owners(tmp_path) != before
        checkpoint = await box.checkpoint()
        assert owners(tmp_path) == before
        output(await box.exec("rm -r a; touch new", user="root"))
        await box.restore(checkpoint)
        (copy,) = await box.fork()
        async with copy:
            assert output(await copy.exec(["cat", "a/b/f"])) == "1\n"
            with pytest.raises(UserUnsupported, match="a copy of a box has one user"):
                await copy.exec(["true"], user="root")
        output(await box.exec("touch late; chmod 700 .; mkdir -m 0 /home/cell/x", user="root"))
        assert isinstance(box.session, SandboxSessionCodeExecutor)
        scratch = box.session.place.scratch
    assert scratch is not None
    assert not scratch.exists()
    assert owners(tmp_path) == before
    assert (tmp_path / "a" / "b" / "f").read_text() == "1\n"
    assert (tmp_path / "late").exists()


# Root makes and removes folders until it is killed.
BUSY = """
import os
for _ in range(3):
    os.fork()
name = f"/workspace/{os.getpid()}"
while True:
    os.mkdir(name, 0o700)
    os.rmdir(name)
"""


@pytest.mark.parametrize("attempt", exhaustive(range(5)))
async def test_files_are_taken_back_when_the_server_is_killed(tmp_path: Path, attempt: int) -> None:
    """Also those that the box makes while it is being ended."""
    before = owners(tmp_path)
    async with Sandbox(users=True, work_dir=tmp_path) as box:
        output(await box.exec("mkdir -m 700 a; touch a/f", user="root"))
        await box.spawn(["python3", "-c", BUSY], user="root")
        while len(list(tmp_path.iterdir())) < 2:
            await asyncio.sleep(0.01)
        connection = box.session.place.require_connection()
        os.kill(connection.pid, signal.SIGKILL)
    while os.stat(tmp_path / "a").st_uid != os.geteuid() or owners(tmp_path) != before:
        await asyncio.sleep(0.01)  # until what outlives the server has done it


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of others")
def test_only_what_has_changed_is_taken_back(tmp_path: Path) -> None:
    """Another program of the caller may use the same IDs."""
    owner, theirs = (os.geteuid(), os.getegid()), SubIds((200000, 100), (300000, 100))
    for name in ("old", "new", "foreign"):
        (tmp_path / name).write_text("")
    os.chown(tmp_path / "old", 200001, 300001)
    changed = os.stat(tmp_path / "old").st_ctime_ns
    while time.clock_gettime_ns(5) <= changed:  # the clock of files, which has large steps
        pass
    left = LeftFiles(theirs)
    left.watch([MountSpec(str(tmp_path), "/x", writable=True)])
    os.chown(tmp_path / "new", 200001, 300001)
    os.chown(tmp_path / "foreign", 400000, 400000)
    left.take_back()
    found = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
    assert found == {"old": (200001, 300001), "new": owner, "foreign": (400000, 400000)}


async def test_a_kept_box_has_users_in_every_process(tmp_path: Path) -> None:
    before = owners(tmp_path)
    async with Sandbox(users=True, kept=True, work_dir=tmp_path) as box:
        output(await box.exec("mkdir -m 700 a; touch a/f", user="root"))
    attached = await Sandbox.attach(box.ref())
    try:
        assert output(await attached.exec(["whoami"], user="root")) == "root\n"
        assert attached.guarantees()[-1].property == "users"
        await attached.checkpoint()
        assert owners(tmp_path) == before
        output(await attached.exec("touch late", user="root"))
    finally:
        await attached.close()
    assert (tmp_path / "late").exists()
    assert owners(tmp_path) == before


async def test_a_root_file_system_has_users_of_its_own(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    async with Sandbox(users=True, root=root) as box:
        output(await box.exec("echo 'eve:x:1234:1234::/eve:/bin/sh' >> /etc/passwd", user=0))
        output(await box.exec(["mkdir", "-m", "777", "/eve"], user="root"))
        await box.files.write("/eve/f", "hers", user="eve", mode=0o600)
        with pytest.raises(PermissionError):
            await box.files.read("/eve/f")
        assert output(await box.exec("cat ~/f; echo $HOME", user="eve")) == "hers/eve\n"
        await box.checkpoint()
        assert await box.files.read("/eve/f", user="root") == b"hers"
    assert not (root / "eve").exists()


async def test_a_box_says_which_users_it_can_have() -> None:
    async with Sandbox() as box:
        with pytest.raises(UserUnsupported, match="'root' here: pass users=True"):
            await box.exec(["true"], user="root")
        assert "users" not in {each.property for each in box.guarantees()}
    levels = {each.property: each.level for each in Sandbox(users=True).guarantees()}
    assert levels["users"] == "enforced"


SAYS = """
import asyncio, cellblock
async def main():
    async with cellblock.Sandbox(users=True) as box:
        print(box.guarantees()[-1].level, box.guarantees()[-1].advice)
        print((await box.exec("id -u")).stdout_text)
        try: await box.exec("id", user="root")
        except cellblock.UserUnsupported as error: print(error)
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without sub-IDs")
def test_a_user_without_sub_ids_is_told_what_to_do() -> None:
    done = run_as_plain_user("-c", SAYS)
    level, user, *error = done.stdout.split("\n")
    assert "not possible here /etc/subuid has no IDs for" in level
    assert user == "1000"
    assert "cannot run as the user 'root' here: /etc/subuid" in done.stdout
    assert "usermod --add-subuids" in done.stdout, error


async def test_a_box_closes_before_its_forks(tmp_path: Path) -> None:
    box = Sandbox(work_dir=tmp_path, users=True)
    output(await box.exec("touch theirs", user="root"))
    (fork,) = await box.fork(1)
    await asyncio.wait_for(box.close(), 60)  # it waited for the fork, which waited for nobody
    assert owners(tmp_path) == {(os.getuid(), os.getgid())}
    assert output(await fork.exec("echo alive")) == "alive\n"
    await fork.close()
