"""Run blocks, and print and save what they do while they do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from ...aio.shielded import run_in_thread
from ...blocks import CodeBlock, file_name
from ...cancellation import CancellationToken
from ...errors import CellblockError
from ...events import Ended, Event, FileCreated, Started
from ...executors.base import CodeExecutor
from ...executors.workspace.snapshot import Snapshot
from ...results import CodeResult, ResultBuilder, fold
from ..own_files import OwnFiles
from .folder_history import FolderHistory
from .output import ChatOutput
from .pictures.find import PictureFinder
from .transcripts.entries import BlockRun, RunEntry, block_run
from .transcripts.transcript import Transcript

_MAX_LISTED_FILES = 20  # per block


class CodeTurn:
    """An agent's executor that shows what `executor` does, whose work folder is `folder`.

    own_files   the files there that no block has written
    history     records what runs change there, for `:undo`; None: nothing is recorded
    is_edited   True if the user changed the blocks that run next
    """

    def __init__(
        self,
        executor: CodeExecutor,
        folder: str,
        transcript: Transcript,
        output: ChatOutput,
        own_files: OwnFiles,
        history: FolderHistory | None = None,
    ) -> None:
        self._executor, self._folder, self._own_files = executor, folder, own_files
        self._transcript, self._output, self._history = transcript, output, history
        self._noted_reason = ""
        self.is_live = executor.is_live
        self.is_edited = False

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run blocks and return their result. See `execute_stream`."""
        async with aclosing(self.execute_stream(code_blocks, cancellation_token)) as events:
            return fold([event async for event in events])

    async def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event, None]:
        """Run blocks and yield events. Afterwards the transcript has what they did.

        Raise the errors of the executor. What happened until then is in the transcript, which also
        says that a block has begun: a killed command cannot add that.
        """
        blocks, is_edited = code_blocks, self.is_edited
        self._output.start_blocks(blocks, self._own_files.was_there)
        done: list[BlockRun] = []
        before = None if self._history is None else await run_in_thread(self._history.begin)
        try:
            self._transcript.add(self._entry_of_running(blocks, done))
            async with aclosing(self._run_blocks(blocks, cancellation_token, done)) as events:
                async for event in events:
                    yield event
        except CellblockError as error:
            block = blocks[len(done)]
            done.append(
                BlockRun(block.code, block.language, f"{error}\n", exit_code=1, outcome="error")
            )
            raise
        finally:
            self._output.start_new_line()
            rest = [BlockRun(block.code, block.language) for block in blocks[len(done) :]]
            self._transcript.replace_last(RunEntry((*done, *rest), is_edited))
            if self._history is not None:
                await self._record_changes(self._history, before)

    async def _record_changes(self, history: FolderHistory, before: Snapshot | None) -> None:
        """Record what the run changed, and show what it changed in files of the person."""
        number, saved = len(self._transcript.entries) - 1, self._transcript.path
        exclude = None if saved is None else saved.resolve()
        run = await run_in_thread(history.end, before, number, exclude=exclude)
        if history.reason and history.reason != self._noted_reason:
            what = "restore files" if run is None else "remove what is new"
            self._output.note(f":undo will not {what}: {history.reason}")
        self._noted_reason = history.reason
        if run is None:
            return
        own = [path for path, change in run.changes.items() if change.is_edit]
        own = [path for path in own if self._own_files.is_own(path)]
        self._own_files.add_written(path for path, change in run.changes.items() if change.after)
        if own:
            lines = await run_in_thread(lambda: list(history.diff(number, only=own)))
            await self._output.show_diff(lines)

    def _entry_of_running(self, blocks: Sequence[CodeBlock], done: Sequence[BlockRun]) -> RunEntry:
        """Return the entry of a run whose next block begins."""
        running, *rest = (BlockRun(block.code, block.language) for block in blocks[len(done) :])
        return RunEntry((*done, replace(running, has_no_end=True), *rest), self.is_edited)

    async def _run_blocks(
        self, blocks: list[CodeBlock], token: CancellationToken, done: list[BlockRun]
    ) -> AsyncGenerator[Event, None]:
        """Print what happens, and add each block that has ended to `done`."""
        builder, finder = ResultBuilder(), PictureFinder(self._folder)
        replaced = await asyncio.to_thread(self._own_files.replaced_by, blocks)
        async with aclosing(self._executor.execute_stream(blocks, token)) as events:
            async for event in events:
                if isinstance(event, FileCreated) and self._is_transcript(event.path):
                    continue
                builder.add_event(event)
                finder.add_event(event)
                await self._output.write_event(event)
                if isinstance(event, Started) and event.block in replaced:
                    self._output.note(self._own_files.replacement_note(replaced[event.block]))
                if isinstance(event, Ended):
                    block, result = blocks[event.block], builder.blocks[-1]
                    await asyncio.to_thread(self._note_files, block, result.files)
                    pictures = await asyncio.to_thread(finder.pictures)
                    await self._output.show_pictures(pictures)
                    done.append(block_run(block, result, pictures))
                    finder = PictureFinder(self._folder)
                    if len(done) < len(blocks) and result.exit_code == 0:
                        self._transcript.replace_last(self._entry_of_running(blocks, done))
                yield event

    def _is_transcript(self, path: str) -> bool:
        """Return True if `path` is the file of this conversation, which no block has changed."""
        saved = self._transcript.path
        return saved is not None and saved.resolve() == Path(self._folder, path).resolve()

    def _note_files(self, block: CodeBlock, files: Sequence[str]) -> None:
        """Record what `block` has written, and print which files of the person it has deleted."""
        name = file_name(block.code)
        self._own_files.add_written(files, whole=[] if name is None else [name])
        deleted = self._own_files.take_deleted()
        for path in deleted[:_MAX_LISTED_FILES]:
            self._output.note(f"deleted {path}, which was in the work folder before")
        if len(deleted) > _MAX_LISTED_FILES:
            self._output.note(f"deleted {len(deleted) - _MAX_LISTED_FILES} more files")
