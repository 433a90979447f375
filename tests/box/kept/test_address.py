"""Only processes of the same user, outside of sandboxes, reach a kept box."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from cellblock import BackendError, Policy, Sandbox
from cellblock.aio.background_loop import background_loop
from cellblock.box.kept import daemon
from cellblock.box.kept.address import BoxAddress, is_own_process, remove_abandoned_sockets
from cellblock.box.kept.orders import LaunchBox
from cellblock.cli import clean
from cellblock.runtime import protocol
from tests.box.kept.programs import daemon_of, wait_for_end

pytestmark = pytest.mark.depends_on_user
BOX = f"box-{'0' * 16}"
# Connects to the socket, begins as a process that attaches does, and prints how the answer begins.
ATTACK = """
import socket
stream = socket.socket(socket.AF_UNIX)
try:
    stream.connect({path!r})
    stream.sendall({opening!r})
    print("answer", stream.recv(5)[4:])
except OSError as error:
    print("answer", b"", error)
"""
OPENING = protocol.encode(protocol.OPEN, 0, b'["TenantSpec", [], []]')


@asynccontextmanager
async def served_box() -> AsyncGenerator[BoxAddress]:
    """Let this process serve a box, so that its protection can be taken off."""
    found = BoxAddress.create(BOX)
    launch = LaunchBox(BOX, "{}", None, found.socket_path)
    loop = background_loop()

    listener, maker = found.listen()

    async def serve() -> None:
        await daemon.BoxDaemon(listener, launch).serve()

    serving = asyncio.ensure_future(loop.call(serve()))
    try:
        yield found
    finally:
        maker.close()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


@pytest.mark.usefixtures("needs_sandbox")
@pytest.mark.parametrize("is_protected", [True, False])
async def test_a_sandbox_that_is_given_the_folder_gets_in_only_without_the_protection(
    private_folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
) -> None:
    if not is_protected:
        monkeypatch.setattr(daemon, "is_own_process", bool)
    async with served_box() as found:
        code = ATTACK.format(path=found.socket_path, opening=OPENING)
        async with Sandbox(policy=Policy(read_only=[str(private_folder)])) as attacker:
            block = await attacker.run_code(code)
            command = await attacker.exec(["python", "-c", code])
    outputs = (block.output, command.stdout_text)
    expected = "b''" if is_protected else repr(bytes([protocol.READY]))
    assert [output.split()[1] for output in outputs] == [expected] * 2, outputs


@pytest.mark.usefixtures("needs_sandbox")
async def test_a_sandbox_does_not_see_the_folder_of_the_sockets() -> None:
    async with Sandbox(kept=True) as box:
        folder = os.path.dirname(box.ref().split(":")[1])
        assert await asyncio.to_thread(os.listdir, folder)
        assert not await box.files.exists(folder)
        pid = daemon_of(box)
        await box.close()
    await wait_for_end(pid)


def test_a_process_of_this_user_is_let_in() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_own_process(one)


def test_a_folder_that_others_can_enter_is_refused(private_folder: Path) -> None:
    private_folder.mkdir()
    for mode in (0o755, 0o710, 0o777):
        private_folder.chmod(mode)
        with pytest.raises(BackendError, match=f"mode {mode:o}. Remove it"):
            BoxAddress.create(BOX)
        with pytest.raises(BackendError, match="only you can enter"):
            BoxAddress(f"{private_folder}/boxes-{'0' * 16}.sock", BOX).connect()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused_and_locks_nobody_out(private_folder: Path) -> None:
    private_folder.mkdir(mode=0o700)
    os.chown(private_folder, 12345, 12345)
    with pytest.raises(BackendError, match="belongs to user 12345"):
        BoxAddress(f"{private_folder}/boxes-{'0' * 16}.sock", BOX).connect()
    found, other = BoxAddress.create(BOX), BoxAddress.create(BOX)
    folders = {os.path.dirname(each.socket_path) for each in (found, other)}
    assert len(folders) == 1
    assert str(private_folder) not in folders
    assert BoxAddress.from_ref(found.ref) == found
    listener, maker = found.listen()
    with listener, maker, found.connect():
        pass
    assert remove_abandoned_sockets() == [found.socket_path]


def test_a_link_to_a_folder_is_refused(private_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    private_folder.symlink_to(tmp_path / "mine")
    with pytest.raises(BackendError, match="must be a folder"):
        BoxAddress.create(BOX)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_socket_of_another_user_is_refused(private_folder: Path) -> None:
    found = BoxAddress.create(BOX)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(found.socket_path)
        os.seteuid(12345)
        try:
            planted.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(BackendError, match="socket of another user"):
            found.connect()


def abandon(found: BoxAddress) -> None:
    """Leave a socket as a process does that is killed."""
    for each in found.listen():
        each.close()


def test_only_sockets_without_a_process_are_removed(private_folder: Path) -> None:
    abandoned, served = BoxAddress.create(BOX), BoxAddress.create(BOX)
    abandon(abandoned)
    (private_folder / "other").touch()
    listener, maker = served.listen()
    with listener, maker:
        assert remove_abandoned_sockets() == [abandoned.socket_path]
        assert sorted(os.listdir(private_folder)) == sorted(
            [os.path.basename(served.socket_path), "other"]
        )


def test_a_new_box_and_the_command_clean_remove_abandoned_sockets(private_folder: Path) -> None:
    abandon(BoxAddress.create(BOX))
    abandoned = BoxAddress.create(BOX)
    assert os.listdir(private_folder) == []
    abandon(abandoned)
    done = CliRunner().invoke(clean.command)
    assert abandoned.socket_path in done.output
    assert os.listdir(private_folder) == []


def test_nothing_is_removed_where_there_is_no_folder(private_folder: Path) -> None:
    assert remove_abandoned_sockets() == []
    assert not private_folder.exists()
