"""NodeExecutors: the executors of one node, in an actor of Ray."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, BinaryIO, Literal, cast
from uuid import uuid4

from ...cancellation import CancellationToken
from ...errors import ExecutorStopped
from ...executors.workspace.full_disk import report_full_disk
from ...limits import MIB
from ..owners import Owner
from ..sessions.executors import JudgedWork, ServedExecutor
from ..sessions.factory import local_factory
from ..sessions.session_files import OpenFile
from ..settings import ServedSettings
from .streams import ItemStream

Kind = Literal["session", "program"]
_MEMORY_BYTES = 1 * MIB  # of an upload; the rest waits in a file


class NodeExecutors:
    """Makes executors, and does with them what the server asks for, each by its ID.

    The server chooses the IDs of executors, runs and uploads, so that it can end one of which it
    has no answer yet.
    """

    def __init__(self, settings: ServedSettings) -> None:
        self._factory = local_factory(settings)
        self._executors = dict[str, ServedExecutor]()
        self._runs = dict[str, tuple[ItemStream, CancellationToken]]()
        self._files = dict[str, OpenFile]()
        self._uploads = dict[str, BinaryIO]()

    async def start(self) -> None:
        """Make the node ready. Raise as entering the factory does."""
        await self._factory.__aenter__()

    async def stop(self) -> None:
        """End all executors, and remove what they have left."""
        for run_id in list(self._runs):
            await self.end_run(run_id)
        for executor_id in list(self._executors):
            await self.release(executor_id, is_idle=False)
        await self._factory.__aexit__(None, None, None)

    # executors

    async def make(self, executor_id: str, owner: Owner, kind: Kind) -> None:
        """See `SessionFactory`."""
        make = self._factory.make if kind == "session" else self._factory.make_program
        self._executors[executor_id] = await make(owner)

    async def release(self, executor_id: str, *, is_idle: bool) -> None:
        """See `SessionFactory`. Do nothing if there is no such executor."""
        if (executor := self._executors.pop(executor_id, None)) is not None:
            await self._factory.release(executor, is_idle=is_idle)

    async def disk_bytes(self, executor_ids: list[str]) -> int:
        """See `SessionFactory`."""
        found = [self._executors[each] for each in executor_ids if each in self._executors]
        return await self._factory.disk_bytes(found)

    async def call(self, executor_id: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of `ServedExecutor` that returns one value."""
        return await getattr(self._find(executor_id), method)(*arguments, **options)

    async def fork(self, executor_id: str, new_id: str, *arguments: Any, **options: Any) -> None:
        """See `ServedExecutor`. The copy gets the ID `new_id`."""
        executor = self._find(executor_id)
        self._executors[new_id] = await executor.fork(*arguments, **options)

    def _find(self, executor_id: str) -> ServedExecutor:
        if (executor := self._executors.get(executor_id)) is None:
            raise ExecutorStopped("The session has ended.")
        return executor

    # runs

    async def begin_run(self, executor_id: str, run_id: str, method: str, *arguments: Any) -> None:
        """Begin "run", "judge", "stream" or "command" of `ServedExecutor`, with a token of here."""
        executor, token = self._find(executor_id), CancellationToken()
        match method:
            case "command":
                items: AsyncGenerator[Any] = executor.command(*arguments)
            case "stream":
                block, options = arguments
                items = executor.stream(block, token, options)
            case "judge":
                (judged,) = arguments
                items = _judge(executor, judged, token)
            case _:
                work, options = arguments
                items = _one_item(executor.run(work, token, options))
        self._runs[run_id] = ItemStream(items), token

    async def next_items(self, run_id: str) -> tuple[list[Any], bool]:
        """Return what a run has yielded since the last call, and whether it has ended."""
        stream, _ = self._runs[run_id]
        return await stream.next_items()

    async def cancel_run(self, run_id: str) -> None:
        """Cancel the token of a run."""
        if run_id in self._runs:
            self._runs[run_id][1].cancel()

    async def end_run(self, run_id: str) -> None:
        """End a run, if it has not ended, and forget it."""
        if run_id in self._runs:
            stream, _ = self._runs.pop(run_id)
            await stream.close()

    # files

    async def call_files(
        self, executor_id: str, method: str, *arguments: Any, **options: Any
    ) -> Any:
        """Call a method of `SessionFiles` that needs no open file."""
        files = self._find(executor_id).files(_any_size)
        return await getattr(files, method)(*arguments, **options)

    async def open_file(self, executor_id: str, name: str) -> tuple[str, int, int]:
        """Return the ID, the size and the time of a file that was opened. See `OpenFile`."""
        file = await self._find(executor_id).files(_any_size).open(name)
        file_id = uuid4().hex
        self._files[file_id] = file
        return file_id, file.size_bytes, file.modified_ns

    async def read_file(self, file_id: str, offset: int, size: int) -> bytes:
        """Return a part of an open file."""
        return await self._files[file_id].read(offset, size)

    async def close_file(self, file_id: str) -> None:
        """Close an open file."""
        self._files.pop(file_id).close()

    async def add_to_upload(self, upload_id: str, data: bytes) -> None:
        """Keep a part of an upload."""
        with report_full_disk("The upload cannot be stored"):
            if upload_id not in self._uploads:
                spool = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)
                self._uploads[upload_id] = cast(BinaryIO, spool)
            await asyncio.to_thread(self._uploads[upload_id].write, data)

    async def write_upload(self, executor_id: str, upload_id: str, name: str) -> None:
        """Write an upload into a file of an executor."""
        content = self._uploads[upload_id]
        await self._find(executor_id).files(_any_size).write(name, content)

    async def end_upload(self, upload_id: str) -> None:
        """Forget an upload."""
        if (content := self._uploads.pop(upload_id, None)) is not None:
            content.close()


def _any_size(_size: int) -> contextlib.nullcontext[None]:
    """Hold nothing of the quota: the server does."""
    return contextlib.nullcontext()


async def _one_item(work: Coroutine[Any, Any, Any]) -> AsyncGenerator[Any]:
    yield await work


async def _judge(
    executor: ServedExecutor, work: JudgedWork, token: CancellationToken
) -> AsyncGenerator[Any]:
    """Yield the CPU seconds of all runs, however they end, and then the verdict."""
    used = list[float]()
    try:
        verdict = await executor.judge(work, token, used.append)
    except Exception:
        yield sum(used)
        raise
    yield sum(used)
    yield verdict
