"""Cells in a running container.

The modules of the runtime server are sent into the container, over the stream of the exec that
runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..containers import seccomp_profile
from ..containers.client import translate_errors
from ..containers.container import Container
from ..containers.spec import NO_FILTER_STATUS, START_PYTHON, START_PYTHON_FILTERED, WORK_DIR
from ..errors import BackendError
from ..limits import MIB, Limits
from ..runtime import bootstrap
from ..runtime.session_orders import OpenSession
from ..runtime.spec import CgroupPlan, ConfinementSpec, ServerSpec, ZygoteSpec
from ..sandbox import seccomp
from .base import Backend
from .connection import Connection, open_server
from .container_shell import ShellBackend
from .kernel_limits import cell_limits, rlimits
from .module_bundle import MAGIC_BYTES, module_bundle
from .transport import Transport

if TYPE_CHECKING:
    from aiodocker.execs import Exec
    from aiodocker.stream import Stream

_EXIT_SECONDS = 10.0  # for the server to end its cells, before the container is told to stop
_POLL_SECONDS = 0.02
_STDERR_BYTES = 2000  # of standard error that an error message quotes
FIRST_SESSION = 1  # the number of the session that is opened together with its server
_NO_PYTHON_STATUS = 127
_OOM_RESERVE_BYTES = 8 * MIB  # for our own processes, until memory that ran out is free again
_NO_PYTHON_FOR_SESSION = (
    "A session needs Python and IPython, but the image has no Python. "
    "Use an image with Python, and run `pip install ipython` in it."
)
_OOM_FILES = {"1": "/sys/fs/cgroup/memory/memory.oom_control", "2": "/sys/fs/cgroup/memory.events"}


class ExecTransport(Transport):
    """The stream of the exec that runs a server in a container."""

    def __init__(self, execution: Exec, stream: Stream) -> None:
        self._exec, self._stream = execution, stream
        self._stderr, self._magic = b"", b""
        self._outgoing = bytearray()
        self._may_read, self._may_write = asyncio.Event(), asyncio.Event()
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Transport`."""
        self._on_data, self._on_end = on_data, on_end
        self._may_read.set()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        self._outgoing += data
        if self._has_magic:
            self._may_write.set()

    @property
    def _has_magic(self) -> bool:
        return len(self._magic) == MAGIC_BYTES

    def pause_reading(self) -> None:
        """See `Transport`."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """See `Transport`."""
        self._may_read.set()

    async def _read(self) -> None:
        while True:
            await self._may_read.wait()
            message = None
            with (
                contextlib.suppress(BackendError),
                translate_errors("The stream of the runtime server broke"),
            ):
                message = await self._stream.read_out()
            if message is None:
                self._on_end()
                return
            if message.stream == 1 and self._has_magic:
                self._on_data(message.data)
            elif message.stream == 1 and (self._magic or message.data[0] == 0):
                self._magic += message.data
                self._send_modules()
            else:  # standard error of the server, or a message of the container engine
                self._stderr = (self._stderr + message.data)[-_STDERR_BYTES:]

    def _send_modules(self) -> None:
        """Send the modules and all waiting data once a Python has sent its magic number.

        Without a Python nothing reads the data, and some engines then block forever when it is
        more than a pipe holds.
        """
        if self._has_magic:
            self._outgoing[:0] = module_bundle(self._magic)
            self._may_write.set()

    async def _write(self) -> None:
        while True:
            await self._may_write.wait()
            self._may_write.clear()
            data = bytes(self._outgoing)
            self._outgoing.clear()
            try:
                with translate_errors("The stream of the runtime server broke"):
                    await self._stream.write_in(data)
            except (BackendError, RuntimeError, AssertionError):
                return  # the reading side reports the cause

    def detach(self) -> None:
        """See `Transport`."""
        for task in self._tasks:
            task.cancel()

    def stderr_tail(self) -> str:
        """See `Transport`."""
        return self._stderr.decode(errors="replace").strip()

    async def exit_code(self) -> int | None:
        """Return the exit status of the program; None while it runs or if it is unknown."""
        with contextlib.suppress(BackendError), translate_errors("The runtime server"):
            state = await self._exec.inspect()
            return None if state["Running"] else int(state["ExitCode"] or 0)
        return None

    async def close(self) -> None:
        """See `Transport`. A server that does not exit ends with its container."""
        self.detach()
        with contextlib.suppress(Exception):
            await self._stream.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                while await self._is_running():  # noqa: ASYNC110 - the engine sends no event
                    await asyncio.sleep(_POLL_SECONDS)

    async def _is_running(self) -> bool:
        with contextlib.suppress(BackendError), translate_errors("The runtime server"):
            return bool((await self._exec.inspect())["Running"])
        return False

    def close_in_child(self) -> None:
        """See `Transport`."""
        response = self._stream._resp  # pyright: ignore[reportPrivateUsage] - aiodocker's
        connection = None if response is None else response.connection
        transport = None if connection is None else connection.transport
        if transport is not None and (own := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                own._sock.close()


async def start_in_container(container: Container, start: str, program: str) -> ExecTransport:
    """Start a Python program in `container`, which receives the modules of the server.

    `start` is the shell command that starts it.
    Raise `BackendError`.
    """
    execution = await container.create_exec(["/bin/sh", "-c", start, program])
    with translate_errors(f"Nothing can be started in container {container.name}"):
        stream = execution.start(detach=False)
        await stream.__aenter__()
    return ExecTransport(execution, stream)


async def _open_session(connection: Connection) -> None:
    try:
        await connection.request(OpenSession(FIRST_SESSION))
    except BaseException:
        await connection.close()
        raise


@dataclass
class ContainerBackend(Backend):
    """Run cells as plain processes in a container.

    preload              modules to import before any cell is forked
    stop_on_disconnect   stop the container when the caller is gone, even if it was killed; the
                         engine then removes a container with `auto_remove`
    sessions             start a server of live sessions, and open one session
    has_filter           raise `BackendError` if the engine has not installed a system call filter
    gvisor               filter system calls by the runtime, because gVisor ignores the filter that
                         the engine is given
    cwd                  the current folder of cells
    """

    container: Container
    limits: Limits
    preload: tuple[str, ...] = ()
    stop_on_disconnect: bool = False
    sessions: bool = False
    has_filter: bool = False
    gvisor: bool = False
    cwd: str = WORK_DIR

    async def open(self) -> Connection:
        """See `Backend`. Without Python in the image, use execs instead of a runtime server."""
        start = START_PYTHON_FILTERED if self.has_filter else START_PYTHON
        transport = await start_in_container(self.container, start, bootstrap.CONTAINER)
        try:
            connection = await open_server(transport, self._spec())
        except BackendError as error:
            exit_code = await transport.exit_code()
            if exit_code == NO_FILTER_STATUS:
                raise BackendError(seccomp_profile.IGNORED_ADVICE) from error
            if exit_code == _NO_PYTHON_STATUS:
                if self.sessions:
                    raise BackendError(_NO_PYTHON_FOR_SESSION) from error
                return await ShellBackend(
                    self.container, self.limits, stop_on_disconnect=self.stop_on_disconnect
                ).open()
            raise
        if self.sessions:
            await _open_session(connection)
        return connection

    def _spec(self) -> ServerSpec:
        client = self.container.client
        # If the engine can, it limits memory and processes by a control group.
        has_cgroups = client.enforces_limits
        # A session's process runs many blocks, so the server counts the CPU seconds of each block.
        session_limits = replace(self.limits, cpu_seconds=None)
        zygote = ZygoteSpec(
            self.cwd,
            ConfinementSpec(
                rlimits(self.limits, has_cgroups=has_cgroups),
                seccomp.cell_program() if self.gvisor else b"",
                drop=True,
                oom_first=True,
            ),
            ConfinementSpec(rlimits(session_limits, has_cgroups=has_cgroups), drop=True)
            if self.sessions
            else None,
            scripts=True,
            preload=self.preload,
            filter_program=seccomp.zygote_program() if self.gvisor else b"",
            output_program=seccomp.output_program(),
        )
        # Without a session, spare cells are the reserve: the kernel kills them first.
        needs_reserve = self.sessions and self.limits.memory_bytes and has_cgroups
        return ServerSpec(
            zygote,
            cell_limits(self.limits),
            writable=(WORK_DIR,),
            cgroups=CgroupPlan(shared=_OOM_FILES.get(client.cgroup_version)),
            sessions=self.sessions,
            spare_sessions=False,
            spares=0 if self.sessions else 2,
            reserve_bytes=_OOM_RESERVE_BYTES if needs_reserve else 0,
            stop_pid=1 if self.stop_on_disconnect else 0,
        )
