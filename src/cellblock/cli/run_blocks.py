"""Run blocks in an executor and print what happens."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence

from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..errors import CellblockError
from ..events import Ended, FileCreated, Started
from ..executors.base import CodeExecutor
from ..results import ResultBuilder
from .options.factory import WORK_DIR, install_progress, make_advisor, make_executor, work_folder
from .options.settings import RunSettings
from .own_files import OwnFiles
from .terminal.interrupts import RunInterrupts
from .terminal.render import Renderer, StyledText
from .terminal.stdio import has_colours, have_same_destination, replace_unencodable, write


async def execute(blocks: Sequence[CodeBlock], settings: RunSettings, skipped: str) -> int:
    """Print `skipped`, run `blocks`, print what happens, and return the command's exit code.

    Raise `CellblockError` if the blocks could not be run.
    """
    replace_unencodable()
    folder = WORK_DIR if settings.work_dir is None else settings.work_dir
    own_files = OwnFiles(folder)
    own_files.remember()
    renderer = Renderer(
        blocks,
        folder=folder,
        same_destination=have_same_destination(),
        advisor=make_advisor(settings),
        has_colours=has_colours(os.environ),
        was_there=own_files.was_there,
    )

    def note(text: str) -> None:
        if not settings.as_json:
            write(renderer.note(text))

    if skipped:
        note(skipped)
    with (
        RunInterrupts(note) as interrupts,
        work_folder(folder, is_default=settings.work_dir is None),
    ):
        executor = make_executor(settings, folder, note)
        try:
            with install_progress(note):
                await executor.start()
            interrupts.set_running()
            exit_code = await _run_and_print(
                executor, blocks, settings, renderer, own_files, interrupts.token
            )
        except asyncio.CancelledError:
            if not interrupts.exit_code:
                raise
            note("cancelled")
            return interrupts.exit_code
        except CellblockError:
            write(renderer.start_new_line())
            raise
        finally:
            interrupts.set_stopping()
            await executor.stop()
    return interrupts.exit_code or exit_code


async def _run_and_print(
    executor: CodeExecutor,
    blocks: Sequence[CodeBlock],
    settings: RunSettings,
    renderer: Renderer,
    own_files: OwnFiles,
    token: CancellationToken,
) -> int:
    """Run `blocks` and print their output while they run, or at the end, as `settings` ask.

    Return the exit code of the last block. Output that is printed immediately is not kept: it is
    unlimited.
    """
    replaced, written = own_files.replaced_by(blocks), list[str]()
    builder, pending, exit_code = ResultBuilder(), list[StyledText](), 0
    async with contextlib.aclosing(executor.execute_stream(blocks, token)) as events:
        async for event in events:
            if isinstance(event, Ended):
                exit_code = event.exit_code
            if settings.as_json:
                builder.add_event(event)
                continue
            pending += renderer.render(event)
            if isinstance(event, FileCreated):
                written.append(event.path)
            elif isinstance(event, Ended):
                own_files.add_written(written)
            elif isinstance(event, Started) and event.block in replaced:
                pending += renderer.note(own_files.replacement_note(replaced[event.block]))
            if settings.stream:
                # In a thread: a slow reader of the output must not delay Ctrl-C.
                await asyncio.to_thread(write, pending)
                pending.clear()
    if settings.as_json:
        result = builder.session_result() if executor.is_live else builder.result()
        text = json.dumps(dataclasses.asdict(result), indent=2, default=os.fspath)
        pending.append(StyledText("stdout", f"{text}\n"))
    await asyncio.to_thread(write, pending)
    return exit_code
