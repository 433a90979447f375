"""LivePython: the live Python of a session, which handles one request at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from ...blocks import CodeBlock, file_name
from ...cancellation import Token
from ...events import Display, Ended, Event, Started
from ...languages import action_for, find_language
from ...runtime.messages import Answer, InputQuestion, RunCode, RunTerms
from ...runtime.session_orders import SessionOrder
from ...source_text import source_to_run
from ..command_line.fresh_process import load_functions_by, run_block
from ..displays import DisplayFiles, has_files, save_display
from ..frame_decoder import FrameDecoder
from ..run_options import RunOptions
from ..workspace.workspace import OutsideWorkspace
from .settings import InputPrompt, SessionSettings

if TYPE_CHECKING:
    from .docker_place import DockerSessionPlace
    from .sandbox_place import SandboxSessionPlace

_DEFAULT_OPTIONS = RunOptions()


class LivePython:
    """The live Python of the session in a place.

    lock   to hold during requests that belong together
    """

    def __init__(
        self, place: SandboxSessionPlace | DockerSessionPlace, settings: SessionSettings
    ) -> None:
        self.lock = asyncio.Lock()
        self._place, self._settings = place, settings
        self._event_count = 0  # of the running block

    async def load_functions(self) -> None:
        """Write the functions module and import it. Raise `FunctionError`."""
        module = self._place.settings.functions
        await asyncio.to_thread(
            self._place.workspace.write, f"{module.module_name}.py", module.source
        )
        code = f"__import__('importlib').import_module({module.module_name!r})"
        await load_functions_by(
            self._place, self._run_request(code, "", RunOptions(is_silent=True))
        )

    async def run(
        self, number: int, block: CodeBlock, token: Token | None, options: RunOptions
    ) -> AsyncGenerator[Event, None]:
        """Run one block: Python in the interpreter, other languages as fresh processes."""
        language = find_language(block.language)
        if (
            language is None
            or language.name != "python"
            or action_for(language, self._place.settings.execution_policies) != "execute"
        ):
            async with contextlib.aclosing(
                run_block(self._place, number, block, token, options)
            ) as events:
                async for event in events:
                    yield event
            return
        self._place.check_backend()
        workspace = self._place.workspace
        workspace.check_identity()
        code, own_name = source_to_run(block.code, block.language), file_name(block.code)
        try:
            name = workspace.resolve(own_name) if own_name else ""
            since = workspace.write(name, code) if name else workspace.file_clock_now()
        except OutsideWorkspace as error:
            yield Started(number, block.language)
            yield Ended(number, 1, "error", message=error.output)
            return
        yield Started(number, block.language, workspace.absolute_path(name) if name else None)
        queued_at, decoder = (
            time.monotonic(),
            FrameDecoder(number, options.lowered(self._place.limits)),
        )
        async with self.lock:
            waited = time.monotonic() - queued_at
            request = self._run_request(code, name, options, waited)
            frames, self._event_count = self._place.frames(request, token, self._on_input), 0
            try:
                async for frame in frames:
                    for event in decoder.decode(frame):
                        if isinstance(event, Ended):
                            for change in workspace.change_events(number, since, exclude=name):
                                yield change
                        for part in self._with_saved_display(event, options):
                            self._event_count += 1
                            yield part
            finally:
                await frames.aclose()
            self._place.session.block_count += 1

    def _with_saved_display(self, event: Event, options: RunOptions) -> Iterable[Event]:
        """Save what `event` displays, and return all events of it."""
        if isinstance(event, Display) and has_files(event.data):
            return save_display(options.displays or DisplayFiles(self._place.workspace.path), event)
        return (event,)

    def _run_request(
        self, code: str, name: str, options: RunOptions, waited: float = 0.0
    ) -> RunCode:
        return RunCode(
            self._place.session.number,
            self._place.terms(options, waited=waited),
            code.encode(errors="replace").decode(),
            f"{self._place.current_folder}/{name}" if name else None,
            rollback_checkpoints=self._settings.checkpoints,
            keep_processes=self._settings.keep_processes,
            is_silent=options.is_silent,
            has_colours=options.has_colours,
            show_interrupts=options.show_interrupts,
            terminal_mode=options.terminal_mode,
            columns=options.columns,
            answers_input=options.answers_input and self._settings.input_callback is not None,
            no_input=options.no_input,
            input_is_timed=options.input_is_timed,
        )

    async def _on_input(self, question: InputQuestion) -> str:
        callback = self._settings.input_callback
        assert callback is not None
        prompt = InputPrompt(question.prompt)
        prompt.hidden, prompt.event_count = question.hidden, self._event_count
        # The callback can wait for a person, and all executors share this loop, so use a thread.
        answer = await asyncio.to_thread(callback, prompt)
        return await answer if isinstance(answer, Awaitable) else answer

    async def query_locked(
        self,
        make: Callable[[int, RunTerms], SessionOrder],
        value: bytes = b"",
        options: RunOptions = _DEFAULT_OPTIONS,
    ) -> tuple[Answer, bytes]:
        """Send the order that `make` returns for the session's number and terms by `options`.

        Hold `lock` meanwhile. Return the answer and the value with it.
        """
        terms = RunTerms(self._place.wall_seconds(options), options.written_bytes)
        order = make(self._place.session.number, terms)
        return await self._place.require_connection().request(order, value)
