"""CellRunner: run cells in a session, and keep the session in step with the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..cancellation import CancellationToken
from ..errors import BackendLost
from ..events import Ended, Event, Output
from ..executors.session.print_progress import PrintProgress
from ..executors.workspace.missed_files import missed_files
from .history import CellHistory
from .magics import Magic, run_magic, split_cell
from .output import CellOutput, Message
from .session import KernelSession
from .session_hooks import ATTRIBUTE

_KEPT_CHARACTERS = 16 * 1024  # of the output of a cell
_MISSED_FILE = (
    "{name} is in the notebook's folder, but cells see only the folder {folder}. Copy it there, or "
    "install a kernel with --work-dir . for the notebook's folder.\n"
)
_SHELL = "__import__('IPython').get_ipython()"
_HOOKS = f"{_SHELL}.{ATTRIBUTE}"


@dataclass(frozen=True)
class CellRequest:
    """A cell to run. `number` is the one that the client shows for it."""

    code: str
    number: int
    stores_history: bool = True
    allows_input: bool = False


class CellRunner:
    """Run cells and questions in `session`, one at a time. Each raises `CellblockError`.

    Before a cell, the hooks are installed if they are missing. If the session's count may differ
    from the client's, it is set, and `In` receives the cells of `history` that it lacks.
    """

    def __init__(self, session: KernelSession, history: CellHistory) -> None:
        self.session, self._history = session, history
        self.token = CancellationToken()  # of the cell that runs
        self.progress = PrintProgress()  # what the readers of messages have handled
        self._lock = asyncio.Lock()
        self._is_prepared = False  # the hooks are installed, and the count is the client's
        self._is_lost = False  # the sandbox has ended
        self._source = resources.files(f"{__package__}").joinpath("session_hooks.py").read_text()

    async def run(self, request: CellRequest, output: CellOutput) -> AsyncGenerator[Message, None]:
        """Run a cell and yield its messages. `output` keeps the rest.

        Raise `ValueError` for a checkpoint's name that is not allowed.
        """
        cell = split_cell(request.code)
        async with self._lock:
            self.token = CancellationToken()
            await self._prepare(request.number)
            for magic in cell.before:
                yield await self._run_magic(magic)
            if cell.code:
                await self._prepare(request.number)
                async with contextlib.aclosing(
                    self._run_code(cell.code, request, output)
                ) as messages:
                    async for message in messages:
                        yield message
            if output.error is None:
                for magic in cell.after:
                    yield await self._run_magic(magic)
            # IPython does not add a cell without code, nor `exit`, to `In`.
            has_exited = output.error is not None and output.error["ename"] == "SystemExit"
            self._is_prepared = self._is_prepared and bool(cell.code) and not has_exited

    async def _run_code(
        self, code: str, request: CellRequest, output: CellOutput
    ) -> AsyncGenerator[Message, None]:
        if not request.stores_history:
            code = f"{_HOOKS}.run_without_history({code!r})"
        text, is_silent = "", not request.stores_history
        async with contextlib.aclosing(
            self._events(code, is_silent=is_silent, allows_input=request.allows_input)
        ) as events:
            async for event in events:
                if isinstance(event, Output):
                    text = (text + event.text)[-_KEPT_CHARACTERS:]
                for message in output.read(event):
                    yield message
        if output.error is not None:
            text += f"\n{output.error['evalue']}"
        work_dir = self.session.executor.work_dir
        for name in missed_files(text, str(work_dir)):
            note = _MISSED_FILE.format(name=name, folder=work_dir.name)
            yield "stream", {"name": "stderr", "text": note}

    async def run_silently(self, request: CellRequest) -> CellOutput:
        """Run a cell that shows nothing and is not counted."""
        async with self._lock:
            self.token = CancellationToken()
            await self._prepare(request.number)
            return await self._run_silently(request.code, allows_input=request.allows_input)

    async def ask(self, question: str, number: int) -> dict[str, Any]:
        """Return the reply to a call of a method of `SessionHooks`; empty if there is none.

        `number` is that of the next cell.
        """
        async with self._lock:
            self.token = CancellationToken()
            await self._prepare(number)
            return (await self._run_silently(f"{_HOOKS}.{question}")).reply

    async def _run_magic(self, magic: Magic) -> Message:
        text = await run_magic(self.session.executor, magic)
        if magic.name == "restore":
            self._is_prepared = False
        return "stream", {"name": "stdout", "text": text}

    async def _prepare(self, number: int) -> None:
        if self._is_lost:
            await self.session.executor.restart()
            self._is_lost = self._is_prepared = False
        if not self._is_prepared:
            names = {"__name__": "cellblock_kernel_hooks"}
            done = await self._run_silently(
                f"(lambda names: (exec({self._source!r}, names), "
                f"names['install']({_SHELL}, {number})))({names!r})"
            )
            self._is_prepared = done.error is None
            await self._add_inputs(done.reply.get("inputs"), number)

    async def _add_inputs(self, known: object, number: int) -> None:
        """Add the cells before `number` to `In`, which has `known` entries."""
        if isinstance(known, int) and 0 < known < number:
            cells = self._history.inputs(known, number)
            await self._run_silently(f"{_HOOKS}.add_inputs({cells!r})")

    async def _run_silently(self, code: str, *, allows_input: bool = False) -> CellOutput:
        output = CellOutput()
        async with contextlib.aclosing(
            self._events(code, is_silent=True, allows_input=allows_input)
        ) as events:
            async for event in events:
                for _ in output.read(event):
                    pass  # shows nothing
        return output

    async def _events(
        self, code: str, *, is_silent: bool, allows_input: bool
    ) -> AsyncGenerator[Event, None]:
        try:
            async with contextlib.aclosing(
                self.session.stream(
                    code, self.token, is_silent=is_silent, allows_input=allows_input
                )
            ) as events:
                async for event in events:
                    if isinstance(event, Ended):
                        # After a notice, the session is an older or a new one.
                        self._is_prepared = self._is_prepared and not event.notice
                        yield self.session.describe_end(event)
                    else:
                        yield event
                        await self.progress.add(event)
        except BackendLost:
            self._is_lost = True
            raise
