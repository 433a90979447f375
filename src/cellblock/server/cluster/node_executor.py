"""NodeExecutor: an executor of another node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Self
from uuid import uuid4

from ...aio.shielded import run_to_end
from ...batch.verdicts import Verdict
from ...blocks import CodeBlock
from ...cancellation import CancellationToken, on_cancel
from ...errors import BackendError
from ...events import Event
from ...executors.run_options import RunOptions
from ...executors.session.checkpoint import Checkpoint
from ...results import CodeResult
from ..sessions.executors import CommandItem, CommandSettings, JudgedWork, ServedExecutor, Work
from ..sessions.session_files import RoomFor
from .node import Node
from .node_files import NodeFiles
from .reservations import Reservation


class NodeExecutor(ServedExecutor):
    """An executor of `node`, for which resources of the node are reserved."""

    def __init__(
        self, node: Node, reservation: Reservation, *, is_live: bool, is_started: bool = False
    ) -> None:
        self.id, self.node, self.reservation = uuid4().hex, node, reservation
        self.is_live, self._is_started = is_live, is_started
        self.node_id = reservation.node_id

    def must_start(self) -> bool:
        """See `ServedExecutor`."""
        return not self._is_started

    async def start(self, session_id: str) -> None:
        """See `ServedExecutor`."""
        await run_to_end(self._call("start", session_id))
        self._is_started = True

    async def run(self, work: Work, token: CancellationToken, options: RunOptions) -> CodeResult:
        """See `ServedExecutor`."""
        async with contextlib.aclosing(self._items(token, "run", work, options)) as items:
            result: CodeResult = await anext(items)
            return result

    async def judge(
        self,
        work: JudgedWork,
        token: CancellationToken,
        on_cpu_seconds: Callable[[float], object],
    ) -> Verdict:
        """See `ServedExecutor`."""
        async with contextlib.aclosing(self._items(token, "judge", work)) as items:
            on_cpu_seconds(await anext(items))
            verdict: Verdict = await anext(items)
            return verdict

    def stream(
        self, block: CodeBlock, token: CancellationToken, options: RunOptions
    ) -> AsyncGenerator[Event]:
        """See `ServedExecutor`."""
        return self._items(token, "stream", block, options)

    def command(self, settings: CommandSettings) -> AsyncGenerator[CommandItem]:
        """See `ServedExecutor`."""
        return self._items(None, "command", settings)

    async def _items(
        self, token: CancellationToken | None, method: str, *arguments: Any
    ) -> AsyncGenerator[Any]:
        run_id, is_done = uuid4().hex, False
        loop = asyncio.get_running_loop()
        with on_cancel(token, loop, lambda: self.node.tell("cancel_run", run_id), repeats=True):
            try:
                await self.node.ask("begin_run", self.id, run_id, method, *arguments)
                while not is_done:
                    items, is_done = await self.node.ask("next_items", run_id)
                    for item in items:
                        yield item
            finally:
                with contextlib.suppress(BackendError):
                    await run_to_end(self.node.ask("end_run", run_id))

    def files(self, room_for: RoomFor) -> NodeFiles:
        """See `ServedExecutor`."""
        return NodeFiles(self.node, self.id, room_for)

    async def cpu_seconds(self) -> float | None:
        """See `ServedExecutor`."""
        seconds: float | None = await self._call("cpu_seconds")
        return seconds

    async def complete(self, code: str, cursor: int, options: RunOptions) -> tuple[int, list[str]]:
        """See `ServedExecutor`."""
        found: tuple[int, list[str]] = await self._call("complete", code, cursor, options)
        return found

    async def restart(self) -> None:
        """See `ServedExecutor`."""
        await self._call("restart")

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """See `ServedExecutor`."""
        found: Sequence[Checkpoint] = await self._call("checkpoints")
        return found

    async def checkpoint(
        self,
        name: str | None,
        *,
        lifetime_seconds: float | None,
        replace: bool,
        end_commands: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        """See `ServedExecutor`."""
        made: Checkpoint = await self._call(
            "checkpoint",
            name,
            lifetime_seconds=lifetime_seconds,
            replace=replace,
            end_commands=end_commands,
            max_copied_bytes=max_copied_bytes,
        )
        return made

    async def drop(self, checkpoint: str) -> None:
        """See `ServedExecutor`."""
        await self._call("drop", checkpoint)

    async def restore(self, checkpoint: str, *, end_commands: bool) -> None:
        """See `ServedExecutor`."""
        await self._call("restore", checkpoint, end_commands=end_commands)

    async def fork(
        self, checkpoint: str | None, *, end_commands: bool, max_copied_bytes: int | None
    ) -> Self:
        """See `ServedExecutor`. The copy is on the same node. Raise `TooManySessions`."""
        reservation = await self.reservation.on_same_node()
        copy = type(self)(self.node, reservation, is_live=True, is_started=True)
        try:
            forking = self.node.ask(
                "fork",
                self.id,
                copy.id,
                checkpoint,
                end_commands=end_commands,
                max_copied_bytes=max_copied_bytes,
            )
            await run_to_end(forking)
        except BaseException:
            await run_to_end(copy.release(is_idle=False))
            raise
        return copy

    async def release(self, *, is_idle: bool) -> None:
        """End the executor, and give back what is reserved for it."""
        try:
            with contextlib.suppress(BackendError):  # then the executor has ended, too
                await self.node.ask("release", self.id, is_idle=is_idle)
        finally:
            self.reservation.cancel()

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return await self.node.ask("call", self.id, method, *arguments, **options)
