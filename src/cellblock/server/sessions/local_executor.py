"""LocalExecutor: an executor of this machine that sees its work folder as /mnt/data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

from ...batch.judge import judge_runs
from ...batch.program_runs import ProgramRuns
from ...batch.verdicts import Verdict
from ...blocks import CodeBlock
from ...box.base import Box
from ...cancellation import CancellationToken
from ...errors import CheckpointError
from ...events import Event
from ...executors.argument_checks import shortest
from ...executors.command_line.base import CommandLineExecutor
from ...executors.run_options import RunOptions
from ...executors.session.base import SessionExecutor
from ...executors.session.checkpoint import Checkpoint
from ...results import CodeResult
from ...startup_files import is_startup_file
from .disk_quota import disk_bytes
from .executors import CommandItem, CommandSettings, JudgedWork, ServedExecutor, Work
from .files import DATA_DIR
from .session_files import LocalFiles, RoomFor


class LocalExecutor(ServedExecutor):
    """An executor of this machine. `fork_obstacle` is the option that makes forks impossible."""

    def __init__(
        self, executor: CommandLineExecutor | SessionExecutor, fork_obstacle: str = ""
    ) -> None:
        executor.place.inner_work_dir = DATA_DIR
        self.executor, self._fork_obstacle = executor, fork_obstacle
        self.is_live = executor.is_live
        self._run_count = 0

    def must_start(self) -> bool:
        """See `ServedExecutor`."""
        return self.executor.must_start()  # asking needs no other thread

    async def start(self, session_id: str) -> None:
        """See `ServedExecutor`."""
        self.executor.session_id = session_id
        await self.executor.start()

    async def run(self, work: Work, token: CancellationToken, options: RunOptions) -> CodeResult:
        """See `ServedExecutor`."""
        with self._counted_run():
            if isinstance(work, CodeBlock):
                return await self.executor.run_blocks([work], token, options)
            assert isinstance(self.executor, CommandLineExecutor)
            return await self.executor.run_program(work, token, options)

    async def stream(
        self, block: CodeBlock, token: CancellationToken, options: RunOptions
    ) -> AsyncGenerator[Event]:
        """See `ServedExecutor`."""
        with self._counted_run():
            events = self.executor.stream_blocks([block], token, options)
            async with contextlib.aclosing(events):
                async for event in events:
                    yield event

    async def judge(
        self,
        work: JudgedWork,
        token: CancellationToken,
        on_cpu_seconds: Callable[[float], object],
    ) -> Verdict:
        """See `ServedExecutor`."""
        assert isinstance(self.executor, CommandLineExecutor)
        runs = ProgramRuns(
            self.executor,
            work.limits,
            seconds=work.seconds,
            room=await self._room(work.written_bytes),
            token=token,
            on_run=on_cpu_seconds,
        )
        with self._counted_run():
            return await judge_runs(runs, work.program)

    async def _room(self, written_bytes: int | None) -> Callable[[], Awaitable[int | None]]:
        """Return what returns how much of `written_bytes` is left when its folders have grown."""
        before = 0 if written_bytes is None else await self._disk_bytes()

        async def remaining() -> int | None:
            if written_bytes is None:
                return None
            return max(1, written_bytes + before - await self._disk_bytes())

        return remaining

    async def _disk_bytes(self) -> int:
        return await asyncio.to_thread(disk_bytes, self.executor.place.writable_folders())

    @contextlib.contextmanager
    def _counted_run(self) -> Generator[None]:
        self._run_count += 1
        try:
            yield
        finally:
            self._run_count -= 1

    def files(self, room_for: RoomFor) -> LocalFiles:
        """See `ServedExecutor`."""
        home = self.executor.place.home_folder
        return LocalFiles(self.executor.work_dir, room_for, self._ignore_upload, home)

    def _ignore_upload(self, name: str) -> None:
        """Do not report an upload as a change by code.

        A startup file that is uploaded during a run is reported: code may have replaced it already.
        """
        if not self._run_count or not is_startup_file(name):
            self.executor.place.ignore_upload(name)

    @property
    def _box(self) -> Box:
        """The commands of the session. Do not close it."""
        assert isinstance(self.executor, SessionExecutor)
        return Box(self.executor, None)

    async def command(self, settings: CommandSettings) -> AsyncGenerator[CommandItem]:
        """See `ServedExecutor`."""
        box = self._box
        pieces = box.exec_stream(
            settings.command,
            cwd=settings.cwd,
            env=settings.env,
            stdin=settings.stdin,
            timeout=shortest(box.timeout, settings.seconds),
            merge_stderr=settings.merges_stderr,
            max_output_bytes=settings.max_output_bytes,
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def cpu_seconds(self) -> float | None:
        """See `ServedExecutor`."""
        executor = self.executor
        return await executor.cpu_seconds() if isinstance(executor, SessionExecutor) else None

    async def complete(self, code: str, cursor: int, options: RunOptions) -> tuple[int, list[str]]:
        """See `ServedExecutor`."""
        assert isinstance(self.executor, SessionExecutor)
        return await self.executor.complete(code, cursor, options)

    async def restart(self) -> None:
        """See `ServedExecutor`."""
        await self.executor.restart()

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """See `ServedExecutor`."""
        return self._box.checkpoints

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
        return await self._box.checkpoint(
            name,
            lifetime_seconds=lifetime_seconds,
            replace=replace,
            end_commands=end_commands,
            max_copied_bytes=max_copied_bytes,
        )

    async def drop(self, checkpoint: str) -> None:
        """See `ServedExecutor`."""
        await self._box.drop(checkpoint)

    async def restore(self, checkpoint: str, *, end_commands: bool) -> None:
        """See `ServedExecutor`."""
        await self._box.restore(checkpoint, end_commands=end_commands)

    async def fork(
        self, checkpoint: str | None, *, end_commands: bool, max_copied_bytes: int | None
    ) -> LocalExecutor:
        """See `ServedExecutor`."""
        if self._fork_obstacle:
            raise CheckpointError(
                f"A session cannot be copied with {self._fork_obstacle}: in the same container, "
                f"{DATA_DIR} of the copy would be that of the original."
            )
        (branch,) = await self._box.fork(
            checkpoint=checkpoint, end_commands=end_commands, max_copied_bytes=max_copied_bytes
        )
        return LocalExecutor(branch.session)
