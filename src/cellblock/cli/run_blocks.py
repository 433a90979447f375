"""Run blocks and show what happens: an executor on one side, the two output streams on the other."""

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
from ..executors.base import CodeExecutor
from ..results import CodeResult, Folder
from .factory import WORK_DIR, made_folder, make_executor, progress
from .interrupts import Interrupts
from .render import Piece, Renderer
from .settings import RunSettings
from .stdio import accept_any_text, is_one_place, write


async def execute(blocks: Sequence[CodeBlock], settings: RunSettings, remark: str) -> int:
    """Run `blocks` and show what happens, `remark` first; give the command's exit code. Raises our errors."""
    accept_any_text()
    folder = WORK_DIR if settings.work_dir is None else settings.work_dir
    renderer = Renderer(blocks, folder=folder, one_place=is_one_place())

    def note(text: str) -> None:
        if not settings.as_json:
            write(renderer.note(text))

    if remark:
        note(remark)
    with Interrupts() as interrupts, made_folder(folder, ours=settings.work_dir is None):
        executor = make_executor(settings, folder, note)
        try:
            with progress(note):
                await executor.start()
            interrupts.started()
            result = await _run(executor, blocks, settings, renderer, interrupts.token)
        except asyncio.CancelledError:
            if not interrupts.exit_code:
                raise
            note("cancelled")
            return interrupts.exit_code
        except CellblockError:
            write(renderer.fresh_line())
            raise
        finally:
            interrupts.stopping()
            await executor.stop()
    return interrupts.exit_code or result.exit_code


async def _run(
    executor: CodeExecutor,
    blocks: Sequence[CodeBlock],
    settings: RunSettings,
    renderer: Renderer,
    token: CancellationToken,
) -> CodeResult:
    """Run `blocks`, and write what there is to write when it is time."""
    folder, held = Folder(), list[Piece]()
    async with contextlib.aclosing(executor.execute_stream(blocks, token)) as events:
        async for event in events:
            folder.add(event)
            if settings.as_json:
                continue
            held += renderer.pieces(event)
            if settings.stream:
                # In a thread: a reader who does not read must not keep Ctrl-C from being heard.
                await asyncio.to_thread(write, held)
                held.clear()
    result = folder.session_result() if executor.is_live else folder.result()
    if settings.as_json:
        text = json.dumps(dataclasses.asdict(result), indent=2, default=os.fspath)
        held.append(Piece("stdout", f"{text}\n"))
    await asyncio.to_thread(write, held)
    return result
