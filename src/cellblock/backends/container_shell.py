"""A container without Python as a place: each block is an exec of its own, and a shell ends what is left of it.

`ShellLink` does in our process what a cell server does inside. Blocks run one at a time, since all that is left of one is
ended by a signal to everything in the container; the shell that sends it stays, and holds the container for its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..containers.client import translated
from ..containers.container import Container
from ..containers.spec import WORK_DIR
from ..errors import BackendError
from ..limits import Limits
from ..runtime import protocol
from ..runtime.server.pipes import Keeper
from ..runtime.server.server import LEASE
from .base import Connection, Place, open_server
from .transport import Link

if TYPE_CHECKING:
    from aiodocker.execs import Exec
    from aiodocker.stream import Stream

_FIRST_LOOK, _LAST_LOOK = (
    0.05,
    0.5,
)  # seconds between looks whether a block's first process lives, at first and later
_REST = 2.0  # seconds for output that is on its way when its writers are dead
_KILLED = 137
# Ends all but the first process and itself, says how many processes the kernel has ended for want of memory, and stays.
_SWEEP = (
    "kill -9 -1; for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do "
    '[ -r $file ] && while read -r name count; do [ "$name" = oom_kill ] && echo $count; done < $file; done; echo .; read _'
)
# The container ends with its owner; a little later, where there is a `sleep`: if only the line to us broke, it is restarted.
_LAST_SWEEP = f"{_SWEEP}; sleep {LEASE}; kill -TERM 1"
_BLOCK = 512  # bytes of one block of `ulimit -f`
_NO_PYTHON = "the image has no python3, so that only the programs that it has can run, such as sh; take one with Python 3.10 or later"


class ShellLink(Link):
    """What a cell server would do for programs, by plain execs."""

    def __init__(self, container: Container, limits: Limits, *, is_ours: bool) -> None:
        self._container, self._limits = container, limits
        self._sweeper = _LAST_SWEEP if is_ours else _SWEEP
        self._decoder = protocol.Decoder()
        self._holder: Stream | None = None
        self._turn = asyncio.Lock()
        self._may_read = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: dict[int, asyncio.Event] = {}
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None
        self._said, self._kills = "", 0

    # the link

    def begin(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Link`."""
        self._on_data, self._on_end = on_data, on_end
        self._may_read.set()

    def send(self, data: bytes) -> None:
        """See `Link`."""
        for frame in self._decoder.feed(data):
            match frame.kind:
                case protocol.OPEN:
                    self._spawn(self._open())
                case protocol.RUN:
                    self._cancels[frame.run] = asyncio.Event()
                    self._spawn(self._run(frame.run, frame.json()))
                case protocol.CANCEL if frame.run in self._cancels:
                    self._cancels[frame.run].set()
                case protocol.PING:
                    self._on_data(protocol.encode(protocol.PONG))
                case _:
                    pass

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Any) -> None:
        try:
            await work
        except BackendError as error:
            self._said = str(error)
            self._on_end()

    def pause(self) -> None:
        """See `Link`."""
        self._may_read.clear()

    def resume(self) -> None:
        """See `Link`."""
        self._may_read.set()

    def let_go(self) -> None:
        """See `Link`."""
        for task in self._tasks:
            task.cancel()

    def last_words(self) -> str:
        """See `Link`."""
        return self._said

    async def close(self) -> None:
        """See `Link`."""
        self.let_go()
        with contextlib.suppress(BackendError):
            await self._sweep()
        if self._holder is not None:
            with contextlib.suppress(Exception):
                await self._holder.close()

    def forget(self) -> None:
        """See `Link`. A copy of the stream holds nothing: the shell at its end is told by the engine."""

    # what a cell server does

    async def _open(self) -> None:
        self._kills = await self._sweep()
        self._on_data(protocol.encode_json(protocol.READY, 0, {}))

    async def _sweep(self) -> int:
        """End all that runs in the container but its first process, and hold it by the shell that did that.

        Gives how many processes the kernel has ended for want of memory by now.
        """
        execution = await self._container.execute(["/bin/sh", "-c", self._sweeper])
        with translated(f"Container {self._container.name}"):
            stream = execution.start(detach=False)
            await stream.__aenter__()
            said = ""
            while not said.endswith(".\n") and (message := await stream.read_out()) is not None:
                if message.stream == 1:  # on the other, that there was nobody to signal
                    said += message.data.decode(errors="replace")
        holder, self._holder = self._holder, stream
        if holder is not None:
            with contextlib.suppress(Exception):
                await holder.close()
        return sum(int(word) for word in said.split() if word.isdigit())

    async def _run(self, number: int, request: dict[str, Any]) -> None:
        arrived, cancelled = time.monotonic(), self._cancels[number]
        try:
            if "argv" not in request:
                self._on_data(protocol.encode_json(protocol.FAILED, number, {"error": _NO_PYTHON}))
                return
            async with self._turn:
                begun = time.monotonic()
                keeper = Keeper(self._limits.output_bytes)
                status, why = await self._block(number, request, keeper, cancelled)
                self._send_rest(number, keeper)
                now = time.monotonic()
                ending = {
                    "status": status,
                    "why": why,
                    "wall": now - begun,
                    "cpu": 0.0,
                    "peak": 0,
                    "queued": begun - arrived,
                }
                self._on_data(protocol.encode_json(protocol.ENDED, number, ending))
        finally:
            self._cancels.pop(number, None)

    async def _block(
        self, number: int, request: dict[str, Any], keeper: Keeper, cancelled: asyncio.Event
    ) -> tuple[int | None, str | None]:
        """Run a program to its end, or to ours; give its wait status and why we ended it."""
        if cancelled.is_set():
            return None, "cancelled"
        argv = ["/bin/sh", "-c", f'{self._ulimits()}exec "$@"', "sh", *request["argv"]]
        execution = await self._container.execute(argv, stdin=False)
        with translated(f"Container {self._container.name}"):
            stream = execution.start(detach=False)
            await stream.__aenter__()
        reading = asyncio.create_task(self._read(number, stream, keeper))
        try:
            why = await self._until_end(
                execution, reading, cancelled, float(request["wall_seconds"])
            )
            status = None if why else await self._status(execution)
            before, self._kills = self._kills, await self._sweep()
            await asyncio.wait({reading}, timeout=_REST)
        finally:
            reading.cancel()
            with contextlib.suppress(Exception):
                await stream.close()
        if status == _KILLED << 8 and self._kills > before:
            why = "memory_bytes"
        return status, why

    def _ulimits(self) -> str:
        limits = self._limits
        found = ["ulimit -c 0"]
        if limits.open_files is not None:
            found.append(f"ulimit -n {limits.open_files}")
        if limits.file_bytes is not None:
            found.append(f"ulimit -f {limits.file_bytes // _BLOCK}")
        if limits.cpu_seconds is not None:
            found.append(f"ulimit -t {round(limits.cpu_seconds + 0.5)}")
        if limits.memory_bytes is not None and not self._container.client.holds_limits:
            found.append(f"ulimit -d {limits.memory_bytes // 1024}")
        if limits.processes is not None and not self._container.client.holds_limits:
            found.append(
                f"ulimit -p {limits.processes} 2>/dev/null || ulimit -u {limits.processes}"
            )  # dash; bash
        return "".join(f"{line} 2>/dev/null; " for line in found)

    async def _until_end(
        self, execution: Exec, reading: asyncio.Task[None], cancelled: asyncio.Event, seconds: float
    ) -> Literal["cancelled", "wall_seconds"] | None:
        """Wait for the end of the program, which is not the end of its output: a child of it may hold the stream."""
        deadline, look = time.monotonic() + seconds, _FIRST_LOOK
        waiting = asyncio.create_task(cancelled.wait())
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                await asyncio.wait(
                    {reading, waiting}, timeout=min(look, left), return_when=asyncio.FIRST_COMPLETED
                )
                if waiting.done():
                    return "cancelled"
                if reading.done() or not await _runs(execution):
                    return None
                if left == 0:
                    return "wall_seconds"
                look = min(2 * look, _LAST_LOOK)
        finally:
            waiting.cancel()

    async def _status(self, execution: Exec) -> int:
        with translated(f"Container {self._container.name}"):
            return int((await execution.inspect())["ExitCode"] or 0) << 8

    async def _read(self, number: int, stream: Stream, keeper: Keeper) -> None:
        with contextlib.suppress(BackendError), translated("The stream of a block broke"):
            while (message := await stream.read_out()) is not None:
                await self._may_read.wait()
                name = "stdout" if message.stream == 1 else "stderr"
                if now := keeper.take(name, message.data):
                    self._on_data(_frame(number, name, now))

    def _send_rest(self, number: int, keeper: Keeper) -> None:
        lost, tail = keeper.rest()
        if lost:
            self._on_data(protocol.encode_json(protocol.CUT, number, lost))
        for name, data in tail:
            self._on_data(_frame(number, name, data))


def _frame(number: int, stream: str, data: bytes) -> bytes:
    return protocol.encode(protocol.STDOUT if stream == "stdout" else protocol.STDERR, number, data)


async def _runs(execution: Exec) -> bool:
    with translated("A block"):
        return bool((await execution.inspect())["Running"])


@dataclass
class ShellPlace(Place):
    """Run programs in a container that has no Python, each by an exec."""

    container: Container
    limits: Limits
    is_ours: bool = False

    async def open(self) -> Connection:
        """Take hold of the container. Raises `BackendError`."""
        return await open_server(
            ShellLink(self.container, self.limits, is_ours=self.is_ours), {"cwd": WORK_DIR}
        )
