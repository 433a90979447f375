"""LocalKernel: a kernel of this machine, over jupyter_client, run as a cell: limited, and ended with all that it started.

Imported when a kernel is started: jupyter_client and ZeroMQ are an extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ...backends.base import Connection
from ...errors import BackendError
from ...events import Ended
from ...limits import Limits
from ...runtime import protocol
from ...runtime.linux import process_tree
from ..frame_decoder import Frames
from .kernel import EXIT_DEAD, Death, LiveKernel
from .request import surely

_log = logging.getLogger(__name__)
_PATIENCE = 60.0  # seconds that a kernel may take to answer for the first time
_LAST = 0.2  # seconds after a kernel's end in which its last messages still come
_TICK = os.sysconf("SC_CLK_TCK")
# The shell becomes the kernel, and says before under which number.
_LAUNCH = ("/bin/sh", "-c", 'echo $$; exec "$@"', "kernel")


class CellProvisioner(LocalProvisioner):
    """Launch a kernel as a cell of an open place, in the place of a plain process."""

    def attach(self, connection: Connection, limits: Limits) -> None:
        """Say where cells are run. Comes before all else."""
        self._connection, self._limits = connection, limits
        self._watching: asyncio.Task[None] | None = None
        self._said = b""
        self.program = ""
        self.number: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[Death] = asyncio.get_running_loop().create_future()

    @property
    def has_process(self) -> bool:
        return self._watching is not None and not self._watching.done()

    async def poll(self) -> int | None:
        return None if self.has_process else EXIT_DEAD

    async def wait(self) -> int | None:
        if self._watching is not None:
            await asyncio.wait([self._watching])
        return EXIT_DEAD

    async def send_signal(self, signum: int) -> None:
        if self.has_process and self.number.done() and not self.number.cancelled():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(
                    self.number.result(), signum
                )  # a cell's main process leads a group of its own

    async def kill(self, restart: bool = False) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def terminate(self, restart: bool = False) -> None:
        await self.kill(restart)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        given: dict[str, str] = kwargs.get("env") or {}
        changed = {name: value for name, value in given.items() if os.environ.get(name) != value}
        # Kernels of Python watch a parent that is named here: ours is a cell, which sees to the end itself.
        request = {"argv": [*_LAUNCH, *cmd], "env": {**changed, "JPY_PARENT_PID": "0"}}
        self.program = shutil.which(cmd[0], path=given.get("PATH")) or ""
        self._watching = asyncio.create_task(self._watch(request))
        await asyncio.wait([self._watching, self.number], return_when=asyncio.FIRST_COMPLETED)
        if not self.number.done():
            await self._watching
        return self.connection_info

    async def _watch(self, request: dict[str, Any]) -> None:
        frames = Frames(0, self._limits)
        async with contextlib.aclosing(self._connection.run(request)) as received:
            async for frame in received:
                if frame.kind in (protocol.STDOUT, protocol.STDERR):
                    self._hear(frame.payload)
                elif frame.kind == protocol.ENDED:
                    for event in frames.events(frame):
                        if isinstance(event, Ended):
                            self.ended.set_result(_death_of(event))

    def _hear(self, data: bytes) -> None:
        self._said += data
        if not self.number.done():
            first, line_end, rest = self._said.partition(b"\n")
            if line_end and first.isdigit():
                self.number.set_result(int(first))
                self._said = rest
        self._said = self._said[-2000:]

    @property
    def last_words(self) -> str:
        """What the kernel's process itself printed last."""
        return self._said.decode(errors="replace").strip()


def _death_of(event: Ended) -> Death:
    """Give what the end of a kernel's process is for the block in it: never a success."""
    if event.limit is not None or event.outcome == "killed":
        return Death(event.exit_code or EXIT_DEAD, event.outcome, event.limit, event.message)
    how = (
        f"signal {event.exit_code - 128}"
        if event.exit_code > 128
        else f"exit code {event.exit_code}"
    )
    return Death(
        event.exit_code or EXIT_DEAD, "killed", None, f"\nKilled: the kernel died ({how})."
    )


class LocalKernel(LiveKernel):
    """A kernel of this machine. `manager` is jupyter_client's, and has been started.

    program   what it runs in, as an absolute path; "" where that is not known
    """

    def __init__(self, manager: Any) -> None:
        provisioner = manager.provisioner
        self.program = provisioner.program if isinstance(provisioner, CellProvisioner) else ""
        self._manager = manager
        self._client = manager.client()
        super().__init__(self._client.session.session, _language(manager))
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    async def open(self) -> None:
        """Connect, and wait until it answers. Raises `BackendError`."""
        self._client.start_channels(hb=False)
        try:
            await self._client.wait_for_ready(timeout=_PATIENCE)
        except RuntimeError as error:
            raise BackendError(
                f"The kernel {self._manager.kernel_name!r} did not start. {self._last_words()}"
            ) from error
        channels = (
            self._client.iopub_channel,
            self._client.shell_channel,
            self._client.stdin_channel,
        )
        self._tasks = [asyncio.create_task(self._read(channel)) for channel in channels]
        self._tasks.append(asyncio.create_task(self._watch()))

    def _last_words(self) -> str:
        provisioner = self._manager.provisioner
        return (
            f"It said: {provisioner.last_words}" if isinstance(provisioner, CellProvisioner) else ""
        )

    async def _read(self, channel: Any) -> None:
        while True:
            try:
                message = await channel.get_msg()
            except (ValueError, TypeError, KeyError, Empty) as error:
                _log.debug("a message of a kernel is passed over: %s", error)
                continue
            await self.inbox.put(message)

    async def _watch(self) -> None:
        provisioner = self._manager.provisioner
        if isinstance(provisioner, CellProvisioner):
            death = await asyncio.shield(provisioner.ended)
        else:  # a kernel that says itself how it is to be started, on another machine perhaps
            alive = True
            while alive:
                await asyncio.sleep(0.5)
                alive = await self._manager.is_alive()
            death = Death()
        await asyncio.sleep(_LAST)
        self.inbox.close(death)

    async def execute(self, code: str, *, silent: bool = False) -> str:
        return self._client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=False
        )

    async def interrupt(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has just died
            await self._manager.interrupt_kernel()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.inbox.close(Death())
            await surely(self._end())

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._client.stop_channels()
        await end(self._manager)

    def cpu_seconds(self) -> float:
        provisioner = self._manager.provisioner
        if not isinstance(provisioner, CellProvisioner) or not provisioner.number.done():
            return 0.0
        root = provisioner.number.result()
        return sum(_cpu_seconds(pid) for pid in (root, *process_tree.descendants(root)))


def _cpu_seconds(pid: int) -> float:
    """Give the CPU time of a process, and of its children that have ended; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        clock = (
            ~pid << 3
        ) | 2  # what clock_getcpuclockid(3) gives: exact, where /proc counts in ticks
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return time.clock_gettime(clock) + (int(fields[13]) + int(fields[14])) / _TICK
    return 0.0


def _language(manager: Any) -> str:
    spec = manager.kernel_spec
    return str(spec.language) if spec is not None and spec.language else str(manager.kernel_name)


async def start_kernel(
    name: str, connection: Connection, limits: Limits, work_dir: Path, folder: Path
) -> LocalKernel:
    """Start the kernel `name` in `work_dir`, as a cell of `connection`. Its connection file comes to lie in `folder`.

    Raises `BackendError`.
    """
    # Its types are those of traitlets, which no checker follows.
    manager: Any = AsyncKernelManager(
        kernel_name=name, connection_file=str(folder / f"kernel-{os.urandom(8).hex()}.json")
    )
    try:
        spec = manager.kernel_spec
    except NoSuchKernel as error:
        there = ", ".join(sorted(KernelSpecManager().find_kernel_specs())) or "none"
        raise BackendError(
            f"The kernel {name!r} is not installed; installed are: {there}. Kernels of Python come with ipykernel: "
            f"python -m ipykernel install --user --name {name}"
        ) from error
    assert spec is not None
    if "kernel_provisioner" not in spec.metadata:
        provisioner = CellProvisioner(
            kernel_id=os.urandom(16).hex(), kernel_spec=spec, parent=manager
        )
        provisioner.attach(connection, limits)
        manager.provisioner = provisioner
    kernel = None
    try:
        await manager.start_kernel(cwd=str(work_dir))
        kernel = LocalKernel(manager)
        await kernel.open()
    except BaseException as error:
        await (surely(end(manager)) if kernel is None else kernel.close())
        if isinstance(error, OSError | RuntimeError) and not isinstance(error, BackendError):
            raise BackendError(f"The kernel {name!r} cannot be started: {error}") from error
        raise
    return kernel


async def end(manager: Any) -> None:
    """End a kernel, and let go of all that belongs to it."""
    with contextlib.suppress(RuntimeError):  # it was never there
        await manager.shutdown_kernel(now=True)
