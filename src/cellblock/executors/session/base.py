"""SessionExecutor: run blocks in one live interpreter, in any backend."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...aio.background_loop import background_loop
from ...blocks import CodeBlock, CodeBlockLike, file_name
from ...cancellation import Token
from ...events import Display, Ended, Event, Started
from ...languages import action_for, find_language
from ...results import ResultBuilder, SessionCodeResult
from ...source_text import source_to_run
from ..command_line.base import CommandLineExecutor
from ..displays import DisplayFiles, has_files, save_display
from ..frame_decoder import FrameDecoder
from ..run_options import RunOptions
from ..settings import ExecutorSettings
from ..workspace.workspace import OutsideWorkspace
from .checkpoint import Checkpoint


class InputPrompt(str):
    """The prompt of `input()`. `hidden` is True if the answer must not be shown (`getpass`).

    It can arrive before the reader of `execute_stream` has received what the block did before:
    `event_count` events, not counting `Started`.
    """

    hidden = False
    event_count = 0


InputCallback = Callable[[InputPrompt], str] | Callable[[InputPrompt], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class SessionSettings(ExecutorSettings):
    """See `SessionExecutor`."""

    checkpoints: bool
    keep_processes: bool
    input_callback: InputCallback | None


class SessionExecutor(CommandLineExecutor):
    """Base class of the session executors. They share these parameters:

    checkpoints      keep a frozen copy of the session before each block, and restore it if the
                     block kills the session
    keep_processes   keep processes that a block started running for later blocks, as a notebook
                     does. Otherwise they are killed when the block ends
    input_callback   called with the prompt to answer `input()` and `getpass`. Without it they raise
                     an error immediately. The prompt is a string whose `hidden` is True for
                     `getpass`

    For the other parameters see `CommandLineExecutor`.
    """

    is_live: ClassVar[bool] = True
    loss_advice = "Call restart() to start a new session."

    if TYPE_CHECKING:

        async def execute_code_blocks(  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> SessionCodeResult: ...

    _session: SessionSettings  # set by the constructor of each subclass

    def _init_state(self) -> None:
        super()._init_state()
        self._session_number = 0
        self._checkpoints: dict[str, Checkpoint] = {}
        self._block_count = 0
        self._event_count = 0  # of the running block
        # The interpreter handles one request at a time.
        self._session_lock = asyncio.Lock()

    async def _load_functions(self) -> None:
        assert self._workspace is not None
        module = self._settings.functions
        await asyncio.to_thread(self._workspace.write, f"{module.module_name}.py", module.source)
        code = f"__import__('importlib').import_module({module.module_name!r})"
        await self._run_function_loader(self._run_request(code, "", RunOptions(is_silent=True)))

    # blocks

    async def _run(
        self, number: int, block: CodeBlock, token: Token | None, options: RunOptions
    ) -> AsyncGenerator[Event, None]:
        language = find_language(block.language)
        if (
            language is None
            or language.name != "python"
            or action_for(language, self._settings.execution_policies) != "execute"
        ):
            async with contextlib.aclosing(super()._run(number, block, token, options)) as events:
                async for event in events:
                    yield event
            return
        assert self._workspace is not None
        self._check_backend()
        workspace = self._workspace
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
        queued_at, decoder = time.monotonic(), FrameDecoder(number, options.lowered(self.limits))
        async with self._session_lock:
            request = self._run_request(code, name, options)
            request["waited"] = time.monotonic() - queued_at
            frames, self._event_count = self._frames(request, token), 0
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
            self._block_count += 1

    def _with_saved_display(self, event: Event, options: RunOptions) -> Iterable[Event]:
        """Save what `event` displays, and return all events of it."""
        if isinstance(event, Display) and has_files(event.data):
            assert self._workspace is not None
            return save_display(options.displays or DisplayFiles(self._workspace.path), event)
        return (event,)

    def _run_request(self, code: str, name: str, options: RunOptions) -> dict[str, Any]:
        request: dict[str, Any] = {
            **options.session_fields(has_callback=self._session.input_callback is not None),
            "op": "run",
            "session": self._session_number,
            "code": code.encode(errors="replace").decode(),
            "wall_seconds": self._wall_seconds(options),
            "rollback_checkpoints": self._session.checkpoints,
            "keep_processes": self._session.keep_processes,
            "file": f"{self._current_folder}/{name}" if name else None,
        }
        if self._settings.save_output:
            request["save"] = self._path_in_backend(f"output_{secrets.token_hex(8)}.txt")
        return request

    def _has_lost_server(self) -> bool:
        return False  # a new server would silently begin a new session

    def _check_backend(self) -> None:
        """Raise `BackendLost` if the backend is gone, before anything is written for a block."""
        self._require_connection().check_open()

    @property
    def _current_folder(self) -> str:
        """The path of the work folder as blocks of this session see it."""
        return self.inner_work_dir

    async def _on_input(self, question: dict[str, Any]) -> str:
        callback = self._session.input_callback
        assert callback is not None
        prompt = InputPrompt(question.get("prompt", ""))
        prompt.hidden, prompt.event_count = question.get("hidden") is True, self._event_count
        # The callback can wait for a person, and all executors share this loop, so use a thread.
        answer = await asyncio.to_thread(callback, prompt)
        return await answer if isinstance(answer, Awaitable) else answer

    def _build_result(self, builder: ResultBuilder) -> SessionCodeResult:
        return builder.session_result()

    # requests

    async def _query(
        self, request: dict[str, Any], value: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        return await background_loop().call(self._start_and_query(request, value))

    async def _start_and_query(
        self, request: dict[str, Any], value: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        if not self._is_open:
            await self._start_for_use()
        async with self._session_lock:
            return await self._query_locked(request, value)

    async def _query_locked(
        self, request: dict[str, Any], value: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        complete = {
            **request,
            "session": self._session_number,
            "wall_seconds": self._wall_seconds(self.default_options),
        }
        return await self._require_connection().request(complete, value)

    def _all_settings(self) -> tuple[ExecutorSettings, ...]:
        return (*super()._all_settings(), self._session)
