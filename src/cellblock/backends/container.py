"""A running container as a place: the cell server's modules are sent in, and spoken to over the stream of one exec."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..containers.client import translated
from ..containers.container import Container
from ..containers.spec import START_PYTHON, WORK_DIR
from ..errors import BackendError
from ..limits import MIB, Limits
from ..runtime import bootstrap
from ..sandbox import seccomp
from .base import Connection, Place, open_server
from .container_shell import ShellPlace
from .kernel_limits import rlimits
from .module_bundle import MARK_BYTES, shipment
from .transport import Link

if TYPE_CHECKING:
    from aiodocker.execs import Exec
    from aiodocker.stream import Stream

_END = 10.0  # seconds that the server may take to end its cells, before the container is told to end all
_LOOK = 0.02
FIRST_SESSION = 1  # the number of the session that is opened with its server
_NO_PYTHON = 127
_RESERVE = 8 * MIB  # for what is ours, while memory that has run out is on its way back
_NO_SESSION = "A session needs Python and IPython, and the image has no Python: take another, with `pip install ipython` in it."
_OOM_FILES = {"1": "/sys/fs/cgroup/memory/memory.oom_control", "2": "/sys/fs/cgroup/memory.events"}


class ExecLink(Link):
    """A server that was started in a container, over the stream of its exec."""

    def __init__(self, execution: Exec, stream: Stream) -> None:
        self._exec, self._stream = execution, stream
        self._log, self._mark = b"", b""
        self._outgoing = bytearray()
        self._may_read, self._may_write = asyncio.Event(), asyncio.Event()
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Link`."""
        self._on_data, self._on_end = on_data, on_end
        self._may_read.set()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def send(self, data: bytes) -> None:
        """See `Link`."""
        self._outgoing += data
        if self._speaks:
            self._may_write.set()

    @property
    def _speaks(self) -> bool:
        return len(self._mark) == MARK_BYTES

    def pause(self) -> None:
        """See `Link`."""
        self._may_read.clear()

    def resume(self) -> None:
        """See `Link`."""
        self._may_read.set()

    async def _read(self) -> None:
        while True:
            await self._may_read.wait()
            message = None
            with (
                contextlib.suppress(BackendError),
                translated("The stream of the cell server broke"),
            ):
                message = await self._stream.read_out()
            if message is None:
                self._on_end()
                return
            if message.stream == 1 and self._speaks:
                self._on_data(message.data)
            elif message.stream == 1 and (self._mark or message.data[0] == 0):
                self._mark += message.data
                self._ship()
            else:  # the server's standard error, or, instead of a server, what the engine has to say
                self._log = (self._log + message.data)[-2000:]

    def _ship(self) -> None:
        """Send the modules, and what waits, once it is known that there is a Python, and which: nothing else would read it.

        An engine may wait for ever for more than a pipe holds to be read by a process that has ended.
        """
        if self._speaks:
            self._outgoing[:0] = shipment(self._mark)
            self._may_write.set()

    async def _write(self) -> None:
        while True:
            await self._may_write.wait()
            self._may_write.clear()
            data = bytes(self._outgoing)
            self._outgoing.clear()
            try:
                with translated("The stream of the cell server broke"):
                    await self._stream.write_in(data)
            except (BackendError, RuntimeError, AssertionError):
                return  # the reading side finds out why

    def let_go(self) -> None:
        """See `Link`."""
        for task in self._tasks:
            task.cancel()

    def last_words(self) -> str:
        """See `Link`."""
        return self._log.decode(errors="replace").strip()

    async def exit_code(self) -> int | None:
        """Give the exit code of what was started; `None` while it runs, or when nobody can tell."""
        with contextlib.suppress(BackendError), translated("The cell server"):
            facts = await self._exec.inspect()
            return None if facts["Running"] else int(facts["ExitCode"] or 0)
        return None

    async def close(self) -> None:
        """See `Link`. What does not go by itself goes with its container."""
        self.let_go()
        with contextlib.suppress(Exception):
            await self._stream.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END):
                while await self._is_running():  # noqa: ASYNC110 - the engine tells nobody by itself
                    await asyncio.sleep(_LOOK)

    async def _is_running(self) -> bool:
        with contextlib.suppress(BackendError), translated("The cell server"):
            return bool((await self._exec.inspect())["Running"])
        return False

    def forget(self) -> None:
        """See `Link`."""
        response = self._stream._resp
        connection = None if response is None else response.connection
        transport = None if connection is None else connection.transport
        if transport is not None and (own := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                own._sock.close()


async def start_in(container: Container, text: str) -> ExecLink:
    """Start a Python program in `container`, which is sent the shipment when it speaks. Raises `BackendError`."""
    execution = await container.execute(["/bin/sh", "-c", START_PYTHON, text])
    with translated(f"Nothing can be started in container {container.name}"):
        stream = execution.start(detach=False)
        await stream.__aenter__()
    return ExecLink(execution, stream)


async def _open_session(connection: Connection) -> None:
    try:
        await connection.ask({"op": "open", "session": FIRST_SESSION, "mounts": [], "delete": []})
    except BaseException:
        await connection.close()
        raise


@dataclass
class ContainerPlace(Place):
    """Run cells as plain processes in a container.

    preload   modules that are imported before any cell is forked
    is_ours   the container ends when we are gone, however that came: an engine with `auto_remove` removes it then
    sessions  have a server of live sessions, and one that is open
    """

    container: Container
    limits: Limits
    preload: tuple[str, ...] = ()
    is_ours: bool = False
    sessions: bool = False

    async def open(self) -> Connection:
        """Start the cell server, or what does for programs where the image has no Python. Raises `BackendError`."""
        link = await start_in(self.container, bootstrap.CONTAINER)
        try:
            connection = await open_server(link, self._spec())
        except BackendError as error:
            if await link.exit_code() == _NO_PYTHON:
                if self.sessions:
                    raise BackendError(_NO_SESSION) from error
                return await ShellPlace(self.container, self.limits, is_ours=self.is_ours).open()
            raise
        if self.sessions:
            await _open_session(connection)
        return connection

    def _spec(self) -> dict[str, Any]:
        client = self.container.client
        oom = _OOM_FILES.get(client.cgroup_version)
        # CPU seconds are for each block, and a session's process lives for many: the server watches them.
        own = {
            "rlimits": rlimits(replace(self.limits, cpu_seconds=None), grouped=client.holds_limits),
            "drop": True,
        }
        return {
            "sessions": self.sessions,
            "spare_sessions": False,
            "spares": 0 if self.sessions else 2,
            "zygote": {
                **({"session_confinement": own} if self.sessions else {}),
                "namespaces": False,
                "scripts": True,
                "tmpfs": [],
                "below_tmpfs": [],
                "cwd": WORK_DIR,
                "preload": list(self.preload),
                "output_program": base64.b64encode(seccomp.output_program()).decode(),
                # The container's own control groups hold memory and processes, where the engine can have it so.
                "confinement": {
                    "rlimits": rlimits(self.limits, grouped=client.holds_limits),
                    "drop": True,
                    "sacrifice": True,
                },
            },
            "limits": self.limits.to_dict(),
            "groups": {"folders": [], "settings": [], "shared": oom},
            # Blocks' processes that wait are ended first as well, and will do for a reserve where there is no session.
            "reserve_bytes": _RESERVE
            if self.sessions and self.limits.memory_bytes and client.holds_limits
            else 0,
            "delete": [],
            "ends": 1 if self.is_ours else 0,
        }
