"""KeptPlace: where the session of a kept box runs, which another process has."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, Self, cast

from ...aio.shielded import run_in_thread, run_to_end
from ...backends.connection import Connection
from ...backends.other_systems import check_sandbox_system
from ...backends.transport import SocketTransport
from ...errors import BackendError, ExecutorStopped
from ...executors.places.sandbox import SandboxSettings
from ...executors.places.settings import PlaceSettings
from ...executors.session.sandbox_place import SandboxSessionPlace
from ...runtime.messages import BlockRequest, RunProgram, RunRequest, TenantSpec
from ...runtime.packets import decode_packet, encode_packet
from ...runtime.session_orders import SessionOrder
from .address import BoxAddress
from .orders import AttachBox, BoxDescription, CloseBox, KeptOrder, KeptReply, LaunchBox

# Its first process ends at once, so that the caller need not wait for the second one.
_PROGRAM = """
import os, sys
if os.fork():
    os._exit(0)
import json
sys.path[:] = json.loads(sys.argv[1])
from cellblock.box.kept.daemon import main
main(int(sys.argv[2]))
"""
_LOG_BYTES = 2000  # of what the process has written that an error message quotes


class DaemonTransport(SocketTransport):
    """The stream to the process of a box. `log`: what that has written, as long as it is open."""

    def __init__(self, stream: socket.socket, log: IO[bytes] | None) -> None:
        super().__init__(stream, 0)
        self._log = log

    def stderr_tail(self) -> str:
        """See `Transport`."""
        if self._log is None or self._log.closed:
            return ""
        self._log.seek(0)
        return self._log.read()[-_LOG_BYTES:].decode(errors="replace").strip()

    async def close(self) -> None:
        """See `Transport`. The process goes on."""
        self._close_socket()


class KeptPlace(SandboxSessionPlace):
    """The session of the box at `address`. With `launch`, opening it the first time makes the box.

    detaches   closing it leaves the box alive
    attached   what `attach` has returned, for the first time that it is opened
    """

    detaches = False

    def __init__(
        self,
        settings: PlaceSettings,
        sandbox: SandboxSettings,
        address: BoxAddress | None,
        launch: LaunchBox | None = None,
    ) -> None:
        super().__init__(settings, sandbox, None)
        self._address, self._launch = address, launch
        self._box_work_dir: Path | None = None
        self.attached: tuple[Connection, BoxDescription] | None = None

    @property
    def box_id(self) -> str:
        """The name of the box."""
        return self.address.box if self._launch is None else self._launch.box

    @property
    def address(self) -> BoxAddress:
        """Where the box is found. Raise `ExecutorStopped` before it was made."""
        if self._address is None or self._launch is not None:
            raise ExecutorStopped("The box is not started. Call start() first.")
        return self._address

    @property
    def work_dir(self) -> Path:
        """See `Place`. Raise `ExecutorStopped` if it is temporary, and the box is not started."""
        if self._box_work_dir is not None:
            return self._box_work_dir
        if self.settings.work_dir is not None:
            return self.settings.work_dir
        raise ExecutorStopped("The box is not started. Call start() first.")

    async def open(self, load_functions: Callable[[], Awaitable[None]] | None = None) -> None:
        """See `Place`. The process of the box has loaded the functions."""
        check_sandbox_system()
        attached, self.attached = self.attached, None
        self.detaches = attached is not None
        await self._adopt(*(attached or await self._make()))

    async def _make(self) -> tuple[Connection, BoxDescription]:
        """Make the box, and attach to it."""
        launch = self._launch
        if launch is None:
            return await attach(self.box_id, self.address.connect())
        address = self._address = BoxAddress.create(launch.box)
        streams = list[socket.socket]()
        with contextlib.ExitStack() as failed, tempfile.TemporaryFile() as log:
            # Entered in the thread: a cancellation would lose what it returns.
            await run_in_thread(
                lambda: streams.append(failed.enter_context(_launch(address, launch, log)))
            )
            failed.pop_all()
            attached = await attach(launch.box, streams[0], log)
        self._launch = None
        return attached

    async def _adopt(self, connection: Connection, found: BoxDescription) -> None:
        """Use the connection to a box that was attached to."""
        self.connection = connection
        try:
            connection.loss_advice = self.loss_advice
            connection.transport.pid = found.pid
            self.root = None if found.root is None else found.root.root()
            self._box_work_dir, self.scratch = Path(found.work_dir), Path(found.scratch)
            self._open_workspace()
            await self._protect_startup_files(self.workspace)
            await self._finish_opening(None)
        except BaseException:
            await run_to_end(self.close(restarting=False))
            raise

    async def fork_of(self, found: BoxDescription) -> Self:
        """Return the open place of a fork of this box."""
        fork = self.copy_with_work_dir(None)
        fork._address = self.address._replace(box=found.box)
        await fork._adopt(*await attach(found.box, fork._address.connect()))
        return fork

    async def close(self, *, restarting: bool) -> None:
        """See `Place`. Close the box for all, unless it `detaches`."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            if not self.detaches:
                with contextlib.suppress(BackendError):  # it has ended
                    await ask(connection, CloseBox())
        finally:
            await connection.close()

    def program_request(self, request: RunRequest) -> BlockRequest:
        """See `Place`. The process of the box adds the folders."""
        return RunProgram(0, request)


def require_kept(place: object) -> KeptPlace:
    """Return the place of a box that is kept. Raise `BackendError` if it is none."""
    if isinstance(place, KeptPlace):
        return place
    raise BackendError(
        "This box ends with its process. Pass kept=True to Sandbox for one that does not."
    )


async def ask(connection: Connection, order: KeptOrder) -> KeptReply:
    """Send an order to the process of kept boxes. Raise the error in its reply."""
    # A connection sends whatever a packet can hold.
    _, data = await connection.request(cast("SessionOrder", order))
    return decode_packet(data, KeptReply).check()


async def attach(
    box: str, stream: socket.socket, log: IO[bytes] | None = None
) -> tuple[Connection, BoxDescription]:
    """Attach to a box over a stream to its process. Raise `BoxGone`, `BackendError`.

    `log`: what its process has written, which makes the box for this stream.
    """
    connection = Connection(DaemonTransport(stream, log))
    await connection.open(TenantSpec())
    try:
        (found,) = (await ask(connection, AttachBox(box))).boxes
    except BaseException:
        if log is not None:  # no other process can find the box
            with contextlib.suppress(BackendError):
                await run_to_end(ask(connection, CloseBox()))
        await run_to_end(connection.close())
        raise
    return connection, found


def _launch(address: BoxAddress, launch: LaunchBox, log: IO[bytes]) -> socket.socket:
    """Start the process of a box, which writes to `log`. Return a stream to it."""
    launch = launch._replace(socket_path=address.socket_path)
    listener, stream = address.listen()
    with listener, contextlib.ExitStack() as failed:
        failed.enter_context(stream)
        failed.callback(_remove, address.socket_path)
        paths = json.dumps([os.path.abspath(path) for path in sys.path])
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _PROGRAM, paths, str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                pass_fds=[listener.fileno()],
            )
            process.communicate(encode_packet(launch))
        except OSError as error:
            raise BackendError(f"The process of the box cannot start: {error}.") from error
        failed.pop_all()
    return stream


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
