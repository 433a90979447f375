"""What all live sessions share, wherever they live: their blocks, and what they are asked."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, ClassVar

from ...aio.background_loop import engine
from ...aio.cross_loop_lock import Turns
from ...backends.sandbox import WORK_DIR
from ...blocks import CodeBlock, file_name, silence_pip
from ...cancellation import Token
from ...events import Display, Ended, Event, FileCreated, Started
from ...languages import action_for, find_language
from ...results import Folder, SessionCodeResult
from ..command_line.base import CommandLineExecutor
from ..displays import DisplayFiles, can_be_saved
from ..frame_decoder import Frames
from ..workspace.workspace import OutsideWorkspace
from .checkpoint import Checkpoint

InputCallback = Callable[[str], str] | Callable[[str], Awaitable[str]]


class LiveSession(CommandLineExecutor):
    """Run the blocks of a live session, and ask it. The parameters of all of them, beside those of `CommandLineExecutor`:

    checkpoints      keep a frozen copy of the session before each block, to go back to when the block ends it
    keep_processes   let processes that a block started live on for the next ones, as in a notebook; else they end with it
    input_callback   answers `input()`, given the prompt; without it `input()` fails at once
    """

    is_live: ClassVar[bool] = True

    def _live(
        self, *, checkpoints: bool, keep_processes: bool, input_callback: InputCallback | None
    ) -> None:
        """Set up what is a session's own."""
        self._keeps_copies, self._keep_processes = checkpoints, keep_processes
        self._input_callback = input_callback
        if input_callback is not None:
            self._on_input = self._answer_input
        self._number = 0
        self._inside = WORK_DIR  # where its code finds the work folder
        self._marks: dict[str, Checkpoint] = {}
        self._blocks = 0
        # One interpreter does one thing at a time; whoever comes meanwhile waits.
        self._turns = Turns()

    async def _load_functions(self) -> None:
        assert self._workspace is not None
        await asyncio.to_thread(
            self._workspace.write, f"{self._module.module_name}.py", self._module.source
        )
        code = f"__import__('importlib').import_module({self._module.module_name!r})"
        await self._expect({**self._order(code), "quietly": True})

    # blocks

    async def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        language = find_language(block.language)
        if (
            language is None
            or language.name != "python"
            or action_for(language, self._execution_policies) != "execute"
        ):
            async with contextlib.aclosing(super()._run_block(number, block, token)) as events:
                async for event in events:
                    yield event
            return
        assert self._workspace is not None
        self._check_place()
        workspace = self._workspace
        workspace.check()
        code, own_name = silence_pip(block.code, block.language), file_name(block.code)
        try:
            name = workspace.place(own_name) if own_name else ""
            since = workspace.write(name, code) if name else workspace.now()
        except OutsideWorkspace:
            yield Started(number, block.language)
            yield Ended(number, 1, "error", message="Filename is not in the workspace")
            return
        yield Started(number, block.language, workspace.shown_name(name) if name else None)
        waited, frames = time.monotonic(), Frames(number, self._limits)
        async with self._turns.next():
            order = {**self._order(code, name), "waited": time.monotonic() - waited}
            received = self._frames(order, token)
            try:
                async for frame in received:
                    for event in frames.events(frame):
                        if isinstance(event, Ended):
                            for path, size in workspace.changed(since, besides=name):
                                yield FileCreated(number, path, size)
                        yield self._with_files(event)
            finally:
                await received.aclose()
            self._blocks += 1

    def _order(self, code: str, name: str = "") -> dict[str, Any]:
        order: dict[str, Any] = {
            "op": "run",
            "session": self._number,
            "code": code.encode(errors="replace").decode(),
            "wall_seconds": self._wall_seconds(),
            "checkpoint": self._keeps_copies,
            "keep_processes": self._keep_processes,
            "input": self._input_callback is not None,
            "file": f"{self._inside}/{name}" if name else None,
        }
        if self._save_output:
            order["save"] = self._as_seen(f"output_{secrets.token_hex(8)}.txt")
        return order

    def _check_place(self) -> None:
        """Raise what says that there is no place any more, before anything is written for a block."""
        self._connected().check()

    def _with_files(self, event: Event) -> Event:
        if not isinstance(event, Display) or not can_be_saved(event.data):
            return event
        assert self._workspace is not None
        files = DisplayFiles(self._workspace.path).save(event.data)
        return dataclasses.replace(event, files=files) if files else event

    async def _answer_input(self, question: dict[str, Any]) -> str:
        assert self._input_callback is not None
        # In a thread: it may wait for a person, and everybody's executors work on this loop.
        answer = await asyncio.to_thread(self._input_callback, str(question.get("prompt", "")))
        return await answer if isinstance(answer, Awaitable) else answer

    def _result(self, folder: Folder) -> SessionCodeResult:
        return folder.session_result()

    # questions

    async def _ask(
        self, request: dict[str, Any], value: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        return await engine().call(self._ask_here(request, value))

    async def _ask_here(
        self, request: dict[str, Any], value: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        if not self._is_open:
            await self._start()
        async with self._turns.next():
            return await self._ask_now(request, value)

    async def _ask_now(
        self, request: dict[str, Any], value: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        full = {**request, "session": self._number, "wall_seconds": self._wall_seconds()}
        return await self._connected().ask(full, value)

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        return {
            **super()._to_config(),
            "checkpoints": self._keeps_copies,
            "keep_processes": self._keep_processes,
        }
