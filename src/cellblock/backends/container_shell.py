"""Programs in a container without Python: each block is a separate exec.

`ShellTransport` does in our process what a runtime server does in the container. Blocks run one at
a time, because a signal to every process in the container ends a block's remaining processes. The
shell that sends this signal stays, and ends the container when the caller is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..containers.client import translate_errors
from ..containers.container import Container
from ..errors import BackendError
from ..limits import Limits
from ..runtime import protocol
from ..runtime.messages import Ending, Failure, OutputLost, Ready, RunRequest, TenantSpec
from ..runtime.output_limit import OutputLimit
from ..runtime.packets import decode_packet
from .base import Backend
from .connection import Connection, open_server
from .transport import Transport

if TYPE_CHECKING:
    from aiodocker.execs import Exec
    from aiodocker.stream import Stream

_MIN_POLL, _MAX_POLL = 0.05, 0.5  # seconds between checks that the program still runs
_OUTPUT_GRACE = 2.0  # seconds for output that arrives after its writers' end
_KILLED_STATUS = 137
# Kill all processes but the first one and itself, print the number of OOM kills, and wait.
_KILL_ALL = (
    "kill -9 -1; "
    "for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do "
    '[ -r $file ] && while read -r name count; do [ "$name" = oom_kill ] && echo $count; done '
    "< $file; done; echo .; read _"
)
# The same, and then stop the container when the stream ends. If there is a `sleep`, wait a moment,
# because a container whose connection merely broke is restarted.
_KILL_ALL_AND_STOP = f"{_KILL_ALL}; sleep {protocol.STOP_DELAY}; kill -TERM 1"
_FILE_BLOCK_BYTES = 512  # bytes of one block of `ulimit -f`
_NO_PYTHON = (
    "the image has no python3, so it can only run programs that it contains, such as sh; "
    "use an image with Python 3.10 or later"
)


class ShellTransport(Transport):
    """Runs programs with plain execs and answers as a runtime server would."""

    def __init__(self, container: Container, limits: Limits, *, stop_on_disconnect: bool) -> None:
        self._container, self._limits = container, limits
        self._kill_command = _KILL_ALL_AND_STOP if stop_on_disconnect else _KILL_ALL
        self._decoder = protocol.Decoder()
        self._kill_shell: Stream | None = None
        self._run_lock = asyncio.Lock()
        self._may_read = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: dict[int, asyncio.Event] = {}
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None
        self._failure, self._oom_kills = "", 0

    # the transport

    def start(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Transport`."""
        self._on_data, self._on_end = on_data, on_end
        self._may_read.set()

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        for frame in self._decoder.feed(data):
            match frame.kind:
                case protocol.OPEN:
                    self._spawn(self._start_server())
                case protocol.RUN:
                    self._cancels[frame.run] = asyncio.Event()
                    self._spawn(self._run(frame.run, decode_packet(frame.payload, RunRequest)))
                case protocol.CANCEL if frame.run in self._cancels:
                    self._cancels[frame.run].set()
                case protocol.PING:
                    self._on_data(protocol.encode(protocol.PONG))
                case _:
                    pass

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(self._report_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report_errors(self, work: Any) -> None:
        try:
            await work
        except BackendError as error:
            self._failure = str(error)
            self._on_end()

    def pause_reading(self) -> None:
        """See `Transport`."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """See `Transport`."""
        self._may_read.set()

    def detach(self) -> None:
        """See `Transport`."""
        for task in self._tasks:
            task.cancel()

    def stderr_tail(self) -> str:
        """See `Transport`."""
        return self._failure

    async def close(self) -> None:
        """See `Transport`."""
        self.detach()
        with contextlib.suppress(BackendError):
            await self._kill_all()
        if self._kill_shell is not None:
            with contextlib.suppress(Exception):
                await self._kill_shell.close()

    def close_in_child(self) -> None:
        """See `Transport`. Do nothing: a copy of the stream keeps nothing alive."""

    # the work of a runtime server

    async def _start_server(self) -> None:
        self._oom_kills = await self._kill_all()
        self._on_data(Ready().encode(0))

    async def _kill_all(self) -> int:
        """Kill all processes in the container except its first one, and keep the shell that did so.

        Return how many processes the kernel has killed so far because memory ran out.
        """
        execution = await self._container.create_exec(["/bin/sh", "-c", self._kill_command])
        with translate_errors(f"Container {self._container.name}"):
            stream = execution.start(detach=False)
            await stream.__aenter__()
            output = ""
            while not output.endswith(".\n") and (message := await stream.read_out()) is not None:
                if message.stream == 1:  # standard error says if there was nothing to kill
                    output += message.data.decode(errors="replace")
        if not output.endswith(".\n"):
            raise BackendError(f"The processes in container {self._container.name} are not killed.")
        previous, self._kill_shell = self._kill_shell, stream
        if previous is not None:
            with contextlib.suppress(Exception):
                await previous.close()
        return sum(int(word) for word in output.split() if word.isdigit())

    async def _run(self, number: int, request: RunRequest) -> None:
        arrived, cancelled = time.monotonic(), self._cancels[number]
        try:
            if not request.job.argv:
                self._on_data(Failure(_NO_PYTHON).encode(number))
                return
            async with self._run_lock:
                started = time.monotonic()
                limit = OutputLimit(self._limits.output_bytes)
                status, why = await self._run_program(number, request, limit, cancelled)
                self._send_rest(number, limit)
                now = time.monotonic()
                ending = Ending(status, why, now - started, 0.0, 0, started - arrived)
                self._on_data(ending.encode(number))
        finally:
            self._cancels.pop(number, None)

    async def _run_program(
        self, number: int, request: RunRequest, limit: OutputLimit, cancelled: asyncio.Event
    ) -> tuple[int | None, str | None]:
        """Run a program to its end. Return its wait status, and the reason if we ended it."""
        if cancelled.is_set():
            return None, "cancelled"
        argv = ["/bin/sh", "-c", f'{self._ulimits()}exec "$@"', "sh", *(request.job.argv or ())]
        execution = await self._container.create_exec(argv, stdin=False)
        with translate_errors(f"Container {self._container.name}"):
            stream = execution.start(detach=False)
            await stream.__aenter__()
        reading = asyncio.create_task(self._read(number, stream, limit))
        try:
            why = await self._wait_for_end(
                execution, reading, cancelled, request.terms.wall_seconds or math.inf
            )
            status = None if why else await self._wait_status(execution)
            before, self._oom_kills = self._oom_kills, await self._kill_all()
            await asyncio.wait({reading}, timeout=_OUTPUT_GRACE)
        finally:
            reading.cancel()
            with contextlib.suppress(Exception):
                await stream.close()
        if status == _KILLED_STATUS << 8 and self._oom_kills > before:
            why = "memory_bytes"
        return status, why

    def _ulimits(self) -> str:
        limits = self._limits
        commands = ["ulimit -c 0"]
        if limits.open_files is not None:
            commands.append(f"ulimit -n {limits.open_files}")
        if limits.file_bytes is not None:
            commands.append(f"ulimit -f {limits.file_bytes // _FILE_BLOCK_BYTES}")
        if limits.cpu_seconds is not None:
            commands.append(f"ulimit -t {round(limits.cpu_seconds + 0.5)}")
        if limits.memory_bytes is not None and not self._container.client.enforces_limits:
            commands.append(f"ulimit -d {limits.memory_bytes // 1024}")
        if limits.processes is not None and not self._container.client.enforces_limits:
            commands.append(
                f"ulimit -p {limits.processes} 2>/dev/null || ulimit -u {limits.processes}"
            )  # dash; bash
        return "".join(f"{command} 2>/dev/null; " for command in commands)

    async def _wait_for_end(
        self, execution: Exec, reading: asyncio.Task[None], cancelled: asyncio.Event, seconds: float
    ) -> Literal["cancelled", "wall_seconds"] | None:
        """Wait until the program has ended or must be ended; return the reason in the latter case.

        The end of its output is not enough: a child of the program may keep the stream open.
        """
        deadline, interval = time.monotonic() + seconds, _MIN_POLL
        waiting = asyncio.create_task(cancelled.wait())
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                await asyncio.wait(
                    {reading, waiting},
                    timeout=min(interval, left),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if waiting.done():
                    return "cancelled"
                if reading.done() or not await _is_running(execution):
                    return None
                if left == 0:
                    return "wall_seconds"
                interval = min(2 * interval, _MAX_POLL)
        finally:
            waiting.cancel()

    async def _wait_status(self, execution: Exec) -> int:
        with translate_errors(f"Container {self._container.name}"):
            return int((await execution.inspect())["ExitCode"] or 0) << 8

    async def _read(self, number: int, stream: Stream, limit: OutputLimit) -> None:
        with contextlib.suppress(BackendError), translate_errors("The stream of a block broke"):
            while (message := await stream.read_out()) is not None:
                await self._may_read.wait()
                name = "stdout" if message.stream == 1 else "stderr"
                if now := limit.add(name, message.data):
                    self._on_data(_frame(number, name, now))

    def _send_rest(self, number: int, limit: OutputLimit) -> None:
        lost, tail = limit.finish()
        if lost:
            self._on_data(OutputLost(**lost).encode(number))
        for name, data in tail:
            self._on_data(_frame(number, name, data))


def _frame(number: int, stream: str, data: bytes) -> bytes:
    return protocol.encode(protocol.STDOUT if stream == "stdout" else protocol.STDERR, number, data)


async def _is_running(execution: Exec) -> bool:
    with translate_errors("A block"):
        return bool((await execution.inspect())["Running"])


@dataclass
class ShellBackend(Backend):
    """Run programs in a container without Python, each with a separate exec."""

    container: Container
    limits: Limits
    stop_on_disconnect: bool = False

    async def open(self) -> Connection:
        """See `Backend`."""
        return await open_server(
            ShellTransport(self.container, self.limits, stop_on_disconnect=self.stop_on_disconnect),
            TenantSpec(),
        )
