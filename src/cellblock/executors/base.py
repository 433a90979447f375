"""CodeExecutor: the contract of every executor, and the template that each one implements."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self, TypeGuard

from ..aio.background_loop import LoopEnded, background_loop
from ..aio.shielded import run_to_end
from ..backends.umask import check_umask
from ..blocks import CodeBlock, CodeBlockLike
from ..cancellation import Token
from ..components import Component
from ..errors import BackendError, SessionError
from ..events import Ended, Event, Started
from ..languages import LANGUAGES, find_language
from ..overrides import refuse_uncalled_overrides
from ..results import CodeResult, ResultBuilder
from ..tracing import Attributes, span
from .argument_checks import check_token
from .frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED
from .run_spans import trace_events, trace_run
from .settings import from_config
from .workspace.full_disk import report_full_disk

RunBlock = Callable[[int, CodeBlock, Token | None], AsyncGenerator[Event, None]]
_log = logging.getLogger(__name__)
_EXECUTE = "Override execute_code_blocks instead."
# What AutoGen's executors call and ours do not, with advice on what to do instead.
_UNCALLED = {
    "_execute_code_dont_check_setup": _EXECUTE,
    "_execute_command": _EXECUTE,
    "_kill_running_command": "Cancel the token: the program ends with all its processes.",
    "_execute_code_block": _EXECUTE,
    "_execute_cell": _EXECUTE,
    "_process_code": _EXECUTE,
    "_save_image": f"{_EXECUTE} The result has the output_files.",
    "_save_html": f"{_EXECUTE} The result has the output_files.",
    "_setup_functions": "Pass functions= to the constructor.",
    "_setup_cwd": "Override start instead.",
    "_populate_available_packages": "Override start instead.",
    "_ensure_access_token": "Pass credential= to the constructor.",
    "_construct_url": "Pass pool_management_endpoint= to the constructor.",
    "_ensure_async_kernel_client": "Override start instead.",
}
_EXAMPLE = """[CodeBlock(code="print('hi')", language="python")]"""


class CodeExecutor(Component, ABC):
    """Run code blocks in order and report exactly what happened.

    Create an executor, start it, use it and stop it. It starts itself on first use, and
    `async with` starts and stops it. Many tasks, event loops and threads can use one executor
    at the same time. After `async with`, a live executor has to be started again by `start`.

    The result reports what the program did. An exception reports that Cellblock failed:

    * Blocks run in order. After the first block whose exit code is not 0, no more blocks run.
    * `exit_code` is the program's exit code, 128+N if signal N ended it, 124 after a time limit,
      125 after a cancelled token, and 137 if memory ran out. `outcome` says which one it was.
      Output that was written before is kept, and no process of the block is left running.
    * An unknown language, or a file name outside the work folder, gives exit code 1. Nothing is
      written or run.
    * If the awaiting task is cancelled, the block is ended and cleaned up. Then
      `asyncio.CancelledError` propagates. Native code of a session may end within 5 seconds.
    * `BackendError`, `WorkspaceError`, `PackageError` and `FunctionError` mean that the block
      could not run at all.

    Subclasses implement `_open`, `_close` and `_run_block`. They are called on the background
    loop.
    """

    component_type: ClassVar[str] = "code_executor"
    # True if all blocks share one live interpreter. False if each block is a fresh process.
    is_live: ClassVar[bool] = False
    # The languages that may run, under any of their names. A subclass can name fewer.
    SUPPORTED_LANGUAGES: ClassVar[list[str]] = [
        name
        for language in LANGUAGES
        if language.policy == "execute"
        for name in (language.name, *language.aliases)
    ]
    # What a subclass cannot override. See `cellblock.overrides`.
    _uncalled_overrides: ClassVar[Mapping[str, str]] = _UNCALLED
    # What its spans name as `cellblock.session.id`; "" if they name none.
    session_id = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_uncalled_overrides(cls)

    def __init__(self) -> None:
        self._init_state()

    def _init_state(self) -> None:
        """Initialize the state that is not a setting, of a new executor or of a copy."""
        self._is_open = False
        self._was_left = False  # the `with` block of a live executor has ended
        self._opened_by = 0  # the process ID of the process that opened the backend
        # Concurrent start, stop and restart calls must not interleave.
        self._state_lock = asyncio.Lock()

    # the public interface

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> CodeResult:
        """Run `code_blocks` and return their result.

        Raise `ValueError` if the list is empty, an item is not a code block, or the token is not
        a token. Raise the errors that the class docstring lists if a block could not run.
        """
        check_token(cancellation_token)
        events = self._events(validate_blocks(code_blocks), cancellation_token, self._run_block)
        return await background_loop().call(self._collect(events))

    def execute_stream(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> AsyncGenerator[Event, None]:
        """Run `code_blocks` and yield events as they happen. `fold` turns the events into a result.

        Closing the generator early kills the running block, as cancelling the task does.
        Raise the same errors as `execute_code_blocks`.
        """
        check_token(cancellation_token)
        return background_loop().stream(
            self._events(validate_blocks(code_blocks), cancellation_token, self._run_block)
        )

    async def start(self) -> None:
        """Start the executor. Do nothing if it is already started.

        Raise `BackendError`, `WorkspaceError`, `PackageError` or `FunctionError` if it fails.
        """
        self._was_left, was_started = False, list[bool]()

        async def start() -> None:
            was_started.append(await self._start())

        try:
            await background_loop().call(start())
        except asyncio.CancelledError:
            if any(was_started):  # it came after the start
                await self.stop()
            raise

    async def stop(self) -> None:
        """Kill what runs and clean up. Do nothing if stopped. The next use starts it again.

        A block that runs at that moment raises `ExecutorStopped`.

        Do nothing in a forked child, because the backend belongs to the process that started it,
        and at the very end of Python's exit, when the backend ends by itself.
        """
        if not self._is_inherited():
            with contextlib.suppress(LoopEnded):
                await background_loop().call(self._stop())

    async def restart(self) -> None:
        """Stop and start again. Only the files in the work folder are kept.

        Raises as `start` does, and `BackendError` in a child of the process that started it.
        """
        if self._is_inherited():
            raise BackendError(
                "This executor was started in another process. Create one in this process."
            )
        self._was_left = False
        await background_loop().call(self._restart())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._was_left = self.is_live
        await self.stop()

    def __repr__(self) -> str:
        state = "started" if self._is_open else "not started"
        return f"<{' '.join([type(self).__name__, *self._repr_details(), state])}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled. "
            "Use dump_component() and load_component() instead."
        )

    def span_attributes(self) -> Attributes:
        """Return what spans say about the executor."""
        return {
            "cellblock.executor": type(self).__name__,
            "cellblock.session.id": self.session_id or None,
        }

    def _repr_details(self) -> list[str]:
        """Return what `repr` says about the settings."""
        return []

    # saved configurations

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls(**from_config(config))

    # the template

    @abstractmethod
    async def _open(self) -> None:
        """Open the backend. If it raises, it leaves nothing behind."""

    @abstractmethod
    async def _close(self, *, restarting: bool) -> None:
        """Kill everything and clean up. Keep the work folder if `restarting`."""

    @abstractmethod
    def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run one block. Yield `Started` first and `Ended` last.

        If the generator is closed early, it kills the block and cleans up.
        """

    async def _start(self) -> bool:
        """Start. Return False if it was started already."""
        async with self._state_lock:
            if self._is_open and self._has_lost_server():
                await self._close_and_open()
            elif not self._is_open:
                await self._open_and_mark()
            else:
                return False
            return True

    async def _start_for_use(self) -> None:
        """Start as `start` does, but raise `SessionError` after a live executor's `with` block."""
        if self._was_left:
            raise SessionError(
                "The session ended with its `with` block, and its variables are gone. "
                "Call start() to start a new session."
            )
        await self._start()

    def must_start(self) -> bool:
        """Return True if a block needs `_start_for_use` first."""
        return not self._is_open or self._has_lost_server()

    def _has_lost_server(self) -> bool:
        """Return True if the next block needs a new server, because the present one has ended.

        Implemented by executors whose blocks need nothing that was lost with the server.
        """
        return False

    async def _start_events(self) -> AsyncGenerator[Event, None]:
        """Start as `_start` does, and yield the events of the start."""
        await self._start_for_use()
        for event in ():  # makes this an async generator; subclasses report the progress of a pull
            yield event

    async def _stop(self) -> None:
        async with self._state_lock:
            if self._is_open:
                await self._mark_closed_and_close(restarting=False)
                _log.info("%r was stopped", self)

    async def _restart(self) -> None:
        async with self._state_lock:
            await self._close_and_open()

    async def _close_and_open(self) -> None:
        if self._is_open:
            await self._mark_closed_and_close(restarting=True)
            _log.info("%r restarts", self)
        await self._open_and_mark()

    async def _mark_closed_and_close(self, *, restarting: bool) -> None:
        """Close to the end even if the caller is cancelled: nothing else would close the rest."""
        self._is_open = False
        await run_to_end(self._close(restarting=restarting))

    async def _open_and_mark(self) -> None:
        check_umask()
        with (
            span("cellblock.start", self.span_attributes()),
            report_full_disk("The executor cannot be started"),
        ):
            await self._open()
        self._mark_open()

    def _mark_open(self) -> None:
        self._is_open, self._opened_by = True, os.getpid()
        _log.info("%r was started", self)

    def _is_inherited(self) -> bool:
        """Return True in a forked child of the process that opened the backend."""
        return self._is_open and self._opened_by != os.getpid()

    async def _events(
        self, blocks: Sequence[CodeBlock], token: Token | None, run_block: RunBlock
    ) -> AsyncGenerator[Event, None]:
        """Start if necessary, run `blocks` by `run_block`, and yield all events."""
        if self.must_start():
            async with contextlib.aclosing(self._start_events()) as events:
                async for event in events:
                    yield event
        for number, block in enumerate(blocks):
            if token is not None and token.is_cancelled():
                for event in _cancelled_events(number, block):
                    yield event
                return
            if not self._supports(block.language):
                yield Started(number, block.language)
                yield unknown_language(number, block)
                return
            exit_code = 0
            run = trace_run(self.span_attributes(), block.language, block.code)
            steps = trace_events(run, run_block(number, block, token))
            async with contextlib.aclosing(steps) as events:
                async for event in events:
                    if isinstance(event, Ended):
                        exit_code = event.exit_code
                        self._log_end(block.language, event)
                    yield event
            if exit_code != 0:
                return

    def _supports(self, tag: str) -> bool:
        """Return False if a subclass has taken a language that runs from `SUPPORTED_LANGUAGES`."""
        language = find_language(tag)
        return (
            language is None
            or language.argv is None
            or any(find_language(name) is language for name in self.SUPPORTED_LANGUAGES)
        )

    async def _collect(self, events: AsyncGenerator[Event, None]) -> CodeResult:
        """Return the fold of `events`."""
        builder = ResultBuilder()
        async with contextlib.aclosing(events):
            async for event in events:
                builder.add_event(event)
        return self._build_result(builder)

    def _log_end(self, language: str, end: Ended) -> None:
        """Log how a block ended, but nothing of its code and output."""
        if end.limit is not None:
            _log.info("%r: a %s block reached the limit %s", self, language, end.limit)
        if end.notice:
            _log.info("%r: %s", self, end.notice.partition(":")[0].partition(".")[0])
        _log.debug(
            "%r: a %s block ended: %s, exit code %d, %.3f s",
            *(self, language, end.outcome, end.exit_code, end.usage.wall_seconds),
        )

    def _build_result(self, builder: ResultBuilder) -> CodeResult:
        """Return the result in the class that this executor uses."""
        return builder.result()


def unknown_language(number: int, block: CodeBlock) -> Ended:
    """Return the end of a block whose language does not run."""
    return Ended(number, 1, "error", message=f"unknown language {block.language}")


def _cancelled_events(number: int, block: CodeBlock) -> tuple[Event, ...]:
    return Started(number, block.language), Ended(
        number, EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT
    )


def validate_blocks(blocks: object) -> list[CodeBlock]:
    """Return `blocks` as a list of `CodeBlock`. Raise `ValueError` if it is empty or not that."""
    if not _is_block_list(blocks):
        raise ValueError(f"Pass code blocks as a list, not as a {_type_name(blocks)}: {_EXAMPLE}")
    checked = [_validate_block(block) for block in blocks]
    if not checked:
        raise ValueError("There are no code blocks to run. Pass at least one.")
    return checked


def _is_block_list(blocks: object) -> TypeGuard[Iterable[object]]:
    # A single block from another package can be iterable: pydantic objects yield their fields.
    return (
        not hasattr(blocks, "code")
        and not isinstance(blocks, str | bytes | Mapping)
        and isinstance(blocks, Iterable)
    )


def _validate_block(block: object) -> CodeBlock:
    code, language = getattr(block, "code", None), getattr(block, "language", None)
    if isinstance(code, str) and isinstance(language, str):
        return block if isinstance(block, CodeBlock) else CodeBlock(code, language)
    if hasattr(block, "code") and hasattr(block, "language"):
        kinds = f"{_type_name(code)} and {_type_name(language)}"
        raise ValueError(
            f"The code and the language of a {_type_name(block)} must be strings, not {kinds}."
        )
    raise ValueError(
        f"A {_type_name(block)} is not a code block. Pass {_EXAMPLE}, "
        "or objects with the same two attributes."
    )


def _type_name(value: object) -> str:
    """Return the name of the class of `value`, with its module."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
