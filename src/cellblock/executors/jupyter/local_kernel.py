"""LocalKernel: a kernel on this machine, reached by jupyter_client.

The kernel runs as a cell: it is held to the limits, and its descendants are killed with it. Import
this module only when a kernel is started, because jupyter_client and ZeroMQ are an extra.
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

from ...backends.connection import Connection
from ...errors import BackendError
from ...events import Ended
from ...limits import Limits
from ...runtime import protocol
from ...runtime.handshake import CellJob
from ...runtime.linux import process_tree
from ...runtime.messages import RunRequest
from ..frame_decoder import FrameDecoder
from .inbox import EXIT_KERNEL_DIED, KernelDied
from .kernel import Kernel, run_shielded

_log = logging.getLogger(__name__)
_READY_SECONDS = 60.0  # until a new kernel must reply to the first request
_DRAIN_SECONDS = 0.2  # after the exit of a kernel, for its last messages to arrive
# The shell prints its process ID, then becomes the kernel.
_REPORT_PID_AND_EXEC = ("/bin/sh", "-c", 'echo $$; exec "$@"', "kernel")


class CellProvisioner(LocalProvisioner):
    """Run a kernel as a cell of a runtime server instead of a plain child process.

    program      absolute path of the kernel's program; "" if it is not known
    kernel_pid   process ID of the kernel, once the kernel has reported it
    died         how the kernel's process ended
    """

    def use_connection(self, connection: Connection, limits: Limits) -> None:
        """Set the connection that runs the cell. Call this before all other methods."""
        self._connection, self._limits = connection, limits
        self._cell_task: asyncio.Task[None] | None = None
        self._tail = b""
        self.program = ""
        self.kernel_pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.died: asyncio.Future[KernelDied] = asyncio.get_running_loop().create_future()

    @property
    def has_process(self) -> bool:
        return self._cell_task is not None and not self._cell_task.done()

    async def poll(self) -> int | None:
        return None if self.has_process else EXIT_KERNEL_DIED

    async def wait(self) -> int | None:
        if self._cell_task is not None:
            await asyncio.wait([self._cell_task])
        return EXIT_KERNEL_DIED

    async def send_signal(self, signum: int) -> None:
        if self.has_process and self.kernel_pid.done() and not self.kernel_pid.cancelled():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(
                    self.kernel_pid.result(), signum
                )  # a cell's main process leads a process group

    async def kill(self, restart: bool = False) -> None:
        if self._cell_task is not None:
            self._cell_task.cancel()
            await asyncio.wait([self._cell_task])

    async def terminate(self, restart: bool = False) -> None:
        await self.kill(restart)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        environment: dict[str, str] = kwargs.get("env") or {}
        changed = {
            name: value for name, value in environment.items() if os.environ.get(name) != value
        }
        # ipykernel exits with the process that JPY_PARENT_PID names. A cell needs no such watch.
        job = CellJob(argv=(*_REPORT_PID_AND_EXEC, *cmd), env={**changed, "JPY_PARENT_PID": "0"})
        self.program = shutil.which(cmd[0], path=environment.get("PATH")) or ""
        self._cell_task = asyncio.create_task(self._run_cell(RunRequest(job)))
        await asyncio.wait([self._cell_task, self.kernel_pid], return_when=asyncio.FIRST_COMPLETED)
        if not self.kernel_pid.done():
            await self._cell_task
        if not self.has_process:
            raise BackendError(f"The kernel ended immediately. It printed: {self.output_tail}")
        return self.connection_info

    async def _run_cell(self, request: RunRequest) -> None:
        decoder = FrameDecoder(0, self._limits)
        async with contextlib.aclosing(self._connection.run(request)) as received:
            async for frame in received:
                if frame.kind in (protocol.STDOUT, protocol.STDERR):
                    self._add_output(frame.payload)
                elif frame.kind == protocol.ENDED:
                    for event in decoder.decode(frame):
                        if isinstance(event, Ended):
                            self.died.set_result(_kernel_died(event))

    def _add_output(self, data: bytes) -> None:
        self._tail += data
        if not self.kernel_pid.done():
            first, newline, rest = self._tail.partition(b"\n")
            if newline and first.isdigit():
                self.kernel_pid.set_result(int(first))
                self._tail = rest
        self._tail = self._tail[-2000:]

    @property
    def output_tail(self) -> str:
        """The end of what the kernel's process has printed outside of blocks."""
        return self._tail.decode(errors="replace").strip()


def _kernel_died(event: Ended) -> KernelDied:
    """Return the result of the block during which the kernel's process ended: never a success."""
    if event.limit is not None or event.outcome == "killed":
        return KernelDied(
            event.exit_code or EXIT_KERNEL_DIED, event.outcome, event.limit, event.message
        )
    if event.exit_code > 128:
        cause = f"signal {event.exit_code - 128}"
    else:
        cause = f"exit code {event.exit_code}"
    message = f"\nKilled: the kernel died ({cause})."
    return KernelDied(event.exit_code or EXIT_KERNEL_DIED, "killed", None, message)


class LocalKernel(Kernel):
    """A kernel on this machine. `manager` is a jupyter_client manager that has been started.

    program   absolute path of the kernel's program; "" if it is not known
    """

    def __init__(self, manager: Any) -> None:
        provisioner = manager.provisioner
        self.program = provisioner.program if isinstance(provisioner, CellProvisioner) else ""
        self._manager = manager
        self._client = manager.client()
        super().__init__(self._client.session.session, _language(manager))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_dead(self) -> bool:
        """See `Kernel`. True before the last messages have arrived: no block can run any more."""
        provisioner = self._manager.provisioner
        has_ended = isinstance(provisioner, CellProvisioner) and provisioner.died.done()
        return has_ended or super().is_dead

    async def connect(self) -> None:
        """Connect, and wait until the kernel replies. Raise `BackendError` if it does not."""
        self._client.start_channels(hb=False)
        try:
            await self._client.wait_for_ready(timeout=_READY_SECONDS)
        except RuntimeError as error:
            raise BackendError(
                f"The kernel {self._manager.kernel_name!r} did not start. {self._output_tail()}"
            ) from error
        channels = (
            self._client.iopub_channel,
            self._client.shell_channel,
            self._client.stdin_channel,
        )
        self._tasks = [asyncio.create_task(self._read_channel(channel)) for channel in channels]
        self._tasks.append(asyncio.create_task(self._wait_for_death()))

    def _output_tail(self) -> str:
        provisioner = self._manager.provisioner
        return (
            f"It printed: {provisioner.output_tail}"
            if isinstance(provisioner, CellProvisioner)
            else ""
        )

    async def _read_channel(self, channel: Any) -> None:
        while True:
            try:
                message = await channel.get_msg()
            except (ValueError, TypeError, KeyError, Empty) as error:
                _log.debug("invalid message of a kernel ignored: %s", error)
                continue
            await self.inbox.add_message(message)

    async def _wait_for_death(self) -> None:
        provisioner = self._manager.provisioner
        if isinstance(provisioner, CellProvisioner):
            died = await asyncio.shield(provisioner.died)
        else:  # the kernel spec names its own provisioner, which may use another machine
            alive = True
            while alive:
                await asyncio.sleep(0.5)
                alive = await self._manager.is_alive()
            died = KernelDied()
        await asyncio.sleep(_DRAIN_SECONDS)
        self.inbox.close(died)

    async def send_execute(self, code: str, *, silent: bool = False) -> str:
        return self._client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=False
        )

    async def interrupt(self) -> None:
        with contextlib.suppress(RuntimeError):  # the kernel has just died
            await self._manager.interrupt_kernel()

    async def _shut_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._client.stop_channels()
        await shut_down_manager(self._manager)

    def cpu_seconds(self) -> float:
        provisioner = self._manager.provisioner
        if not isinstance(provisioner, CellProvisioner) or not provisioner.kernel_pid.done():
            return 0.0
        root = provisioner.kernel_pid.result()
        return sum(_cpu_seconds(pid) for pid in (root, *process_tree.descendants(root)))


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its reaped children; 0 if the process is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The clock ID of clock_getcpuclockid(3). It is exact; /proc counts in ticks.
        clock = (~pid << 3) | 2
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        reaped = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(clock) + reaped
    return 0.0


def _language(manager: Any) -> str:
    spec = manager.kernel_spec
    return str(spec.language) if spec is not None and spec.language else str(manager.kernel_name)


async def start_kernel(
    name: str, connection: Connection, limits: Limits, work_dir: Path, connection_folder: Path
) -> LocalKernel:
    """Start the kernel `name` in `work_dir`, as a cell of `connection`.

    Its connection file is written to `connection_folder`. Raise `BackendError` if it does not
    start.
    """
    # Any: type checkers do not understand traitlets.
    manager: Any = AsyncKernelManager(
        kernel_name=name,
        connection_file=str(connection_folder / f"kernel-{os.urandom(8).hex()}.json"),
    )
    try:
        spec = manager.kernel_spec
    except NoSuchKernel as error:
        installed = ", ".join(sorted(KernelSpecManager().find_kernel_specs())) or "none"
        raise BackendError(
            f"The kernel {name!r} is not installed; installed are: {installed}. Install a Python "
            f"kernel by: python -m ipykernel install --user --name {name}"
        ) from error
    assert spec is not None
    if "kernel_provisioner" not in spec.metadata:
        provisioner = CellProvisioner(
            kernel_id=os.urandom(16).hex(), kernel_spec=spec, parent=manager
        )
        provisioner.use_connection(connection, limits)
        manager.provisioner = provisioner
    kernel = None
    try:
        await manager.start_kernel(cwd=str(work_dir))
        kernel = LocalKernel(manager)
        await kernel.connect()
    except BaseException as error:
        await (run_shielded(shut_down_manager(manager)) if kernel is None else kernel.close())
        if isinstance(error, OSError | RuntimeError) and not isinstance(error, BackendError):
            raise BackendError(f"The kernel {name!r} cannot be started: {error}") from error
        raise
    return kernel


async def shut_down_manager(manager: Any) -> None:
    """Kill the kernel of a jupyter_client manager, and release its resources."""
    with contextlib.suppress(RuntimeError):  # it was never started
        await manager.shutdown_kernel(now=True)
