"""CommandLineExecutor: write each block to a file and run the file in a fresh process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ...aio.background_loop import background_loop
from ...blocks import CodeBlock, CodeBlockLike
from ...cancellation import Token
from ...events import Event
from ...results import CodeResult, CommandLineCodeResult
from ..base import CodeExecutor, RunBlock, validate_blocks
from ..places.base import PlaceProperties
from ..run_options import RunOptions
from ..run_spans import record_end, trace_run
from ..settings import Config
from .fresh_process import load_functions, run_block, run_program
from .program import ProgramRun


class CommandLineExecutor(PlaceProperties, CodeExecutor):
    """Base class of the command-line executors. They share these parameters:

    timeout               seconds that one block may run, at least 1. `None` means no limit
    work_dir              the folder that blocks share, created if it is missing. `None` creates a
                          temporary folder, which `stop` removes
    functions             functions that blocks can import from the module `functions_module`
    cleanup_temp_files    remove the files of blocks that have no `# filename:` comment
    packages              requirements for the blocks' Python, installed once and cached. Their
                          commands come first in PATH
    limits                how much one block may use. A limit that is not named keeps its default
    execution_policies    maps a language to "execute", "save" or "ignore" to override the default.
                          A block with a `# filename:` comment is saved even if the default
                          ignores its language
    save_output           save the complete output of each block to a file `output_….txt` in the
                          work folder
    """

    if TYPE_CHECKING:

        async def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> CommandLineCodeResult: ...

    async def _open(self) -> None:
        has_functions = bool(self._settings.functions.functions)
        await self.place.open(self._load_functions if has_functions else None)

    async def _close(self, *, restarting: bool) -> None:
        await self.place.close(restarting=restarting)

    def _has_lost_server(self) -> bool:
        return self.place.has_lost_server() and not self._is_inherited()

    def _start_events(self) -> AsyncGenerator[Event, None]:
        return self.place.start_events(self._start_for_use)

    async def _load_functions(self) -> None:
        await load_functions(self.place)

    def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        return run_block(self.place, number, block, token, RunOptions())

    def _to_config(self) -> Config:
        return self.place.to_config()

    # Runs with options, for what an executor is a part of.

    def run_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> Coroutine[Any, Any, CodeResult]:
        """Run blocks as `execute_code_blocks` does, with `options`."""
        events = self._events(validate_blocks(blocks), token, self._with_options(options))
        return background_loop().call(self._collect(events))

    def stream_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> AsyncGenerator[Event, None]:
        """Run blocks as `execute_stream` does, with `options`."""
        events = self._events(validate_blocks(blocks), token, self._with_options(options))
        return background_loop().stream(events)

    def _with_options(self, options: RunOptions) -> RunBlock:
        return lambda number, block, token: run_block(self.place, number, block, token, options)

    def run_program(
        self, program: ProgramRun, token: Token | None, options: RunOptions
    ) -> Coroutine[Any, Any, CodeResult]:
        """Run a program in the work folder.

        Raises as `execute_code_blocks` does.
        """
        return background_loop().call(self._run_program(program, token, options))

    async def _run_program(
        self, program: ProgramRun, token: Token | None, options: RunOptions
    ) -> CodeResult:
        code = program.code_file[1] if program.code_file else ""
        with trace_run(self.span_attributes(), program.language, code) as run:
            result = await run_program(self.place, program, token, options)
            record_end(run, result, result.output)
        return result
