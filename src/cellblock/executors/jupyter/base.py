"""KernelExecutor: run each block as a request to one Jupyter kernel that keeps its state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from ...blocks import CodeBlock, CodeBlockLike
from ...cancellation import Token, on_cancel
from ...errors import CellblockError, ExecutorStopped, FunctionError
from ...events import Display, Ended, Event, FileCreated, Output, Started, Usage
from ...functions.loading import code_to_load_functions
from ...functions.module import Function, FunctionModule
from ...languages import find_language
from ...limits import LOCAL_LIMITS, Limits
from ...results import JupyterCodeResult, ResultBuilder, SessionCodeResult
from ...runtime.linux.safe_folder import write_all
from ...source_text import source_to_run
from ..argument_checks import (
    check_bool,
    check_folder,
    check_limits,
    check_timeout,
    shortest,
)
from ..base import CodeExecutor
from ..displays import DisplayFiles, create_output_file, save_display
from ..frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED
from ..settings import BlockProperties, BlockSettings, Config, to_config
from ..workspace.temp_dir_removal import TempDirRemoval
from .kernel import Kernel
from .output_limit import TextOutputLimit
from .request import KernelRequest

_STOPPED_MESSAGE = "The executor was stopped."
_RESTARTED_NOTICE = "The kernel was restarted: its variables are gone."
_RECONNECTED_NOTICE = (
    "The connection to the kernel was lost during the block and restored: output may be missing."
)
_SHELL_TAGS = (("sh", "bash"), ("shell", "bash"))

# IPython's hint about sys.exit() at its prompt is of no use in a block.
_SETUP_CODE = """__import__("warnings").filterwarnings("ignore", "To exit: use 'exit'")"""
# ipykernel reads the output of child processes from pipes in threads, and ends a request without
# waiting for them. Wait until each pipe is empty and its thread reads it again, as Linux shows.
# Elsewhere, and for other kernels, wait a moment.
_WAIT_FOR_OUTPUT = """
import fcntl, sys, termios, time

end = time.monotonic() + 1
try:
    for stream in sys.stdout, sys.stderr:
        pipe = stream._fid
        system_call = f"/proc/self/task/{stream.watch_fd_thread.native_id}/syscall"
        while time.monotonic() < end:
            if fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4):
                with open(system_call) as file:
                    if file.read().split()[1:2] == [hex(pipe)]:
                        break
            time.sleep(0.0005)
except Exception:
    time.sleep(0.005)
"""
_FLUSH_CODE = f"exec({_WAIT_FOR_OUTPUT!r}, {{}})"


@dataclass(frozen=True, kw_only=True)
class KernelSettings(BlockSettings):
    """See `KernelExecutor`."""

    kernel_name: str
    output_dir: Path | None
    save_output: bool


class KernelExecutor(BlockProperties[KernelSettings], CodeExecutor):
    """Base class of the executors that run blocks in a Jupyter kernel. Their common parameters:

    kernel_name        name of the kernel, as `jupyter kernelspec list` prints it
    timeout            seconds that one block may run; at least 1. None: no limit
    output_dir         folder for the images and HTML pages that blocks display; None: a temporary
                       folder, which `stop` removes
    functions          functions that blocks in a Python kernel can import from `functions_module`
    limits             `wall_seconds` and `output_bytes` apply to each block
    save_output        save the full output of each block as `output_….txt` in the work folder

    A block that exceeds its time limit or is cancelled is interrupted. If the code does not end
    then, the kernel is killed. A kernel that was killed or has died is replaced by a new one, which
    has none of the variables; `notice` of the result says so. `sys.exit(3)` ends the block with
    exit code 3 and leaves the kernel running. Concurrent calls wait for each other.
    """

    is_live: ClassVar[bool] = True

    if TYPE_CHECKING:

        async def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> JupyterCodeResult: ...

    def __init__(
        self,
        kernel_name: str,
        timeout: float | None,
        output_dir: str | os.PathLike[str] | None,
        *,
        functions: Sequence[Function],
        functions_module: str,
        limits: Limits,
        save_output: bool,
    ) -> None:
        super().__init__()
        if not isinstance(kernel_name, str) or not kernel_name:  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"kernel_name must be the name of a kernel, not {kernel_name!r}.")
        self._settings = KernelSettings(
            kernel_name=kernel_name,
            timeout=check_timeout(timeout),
            output_dir=check_folder("output_dir", output_dir),
            functions=FunctionModule(functions, functions_module),
            limits=check_limits(limits, LOCAL_LIMITS),
            save_output=check_bool("save_output", save_output),
        )
        self._temporary_output_dir: Path | None = None
        self._output_dir_removal: TempDirRemoval | None = None
        self._kernel: Kernel | None = None
        # A kernel runs one request at a time, and the time limit counts from its start.
        self._kernel_lock = asyncio.Lock()

    @property
    def kernel_name(self) -> str:
        """The name of the kernel."""
        return self._settings.kernel_name

    def _repr_details(self) -> list[str]:
        return [f"timeout={self.timeout}"]

    @property
    def output_dir(self) -> Path:
        """The folder for images and HTML pages."""
        if self._settings.output_dir is not None:
            return self._settings.output_dir
        if self._temporary_output_dir is None or not self._temporary_output_dir.exists():
            self._temporary_output_dir = Path(tempfile.mkdtemp(prefix="cellblock-shown-"))
            self._output_dir_removal = TempDirRemoval(self, self._temporary_output_dir)
        return self._temporary_output_dir

    # implemented by subclasses

    @abstractmethod
    async def _start_kernel(self) -> Kernel:
        """Start and return a kernel. Raise `BackendError` on failure, and leave nothing behind."""

    @abstractmethod
    def _run_other_language(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run a block whose language is not the kernel's."""

    @abstractmethod
    def _saved_output_folder(self) -> Path:
        """Return the folder in which `save_output` saves the output of blocks."""

    def _shared_folder(self) -> Path | None:
        """Return the folder that contained code can write to, if there is one."""
        return None

    async def _package_folders(self, kernel: Kernel) -> list[str]:
        """Return the folders with the packages that the functions need."""
        return []

    # implementation of CodeExecutor

    async def _open(self) -> None:
        self._kernel = await self._start_and_prepare_kernel()

    async def _close(self, *, restarting: bool) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.close()
        if not restarting and self._output_dir_removal is not None:
            await asyncio.to_thread(self._output_dir_removal.remove)
            self._output_dir_removal = self._temporary_output_dir = None

    async def _start_and_prepare_kernel(self) -> Kernel:
        kernel = await self._start_kernel()
        try:
            if _same_language("python", kernel.language):
                async for _ in KernelRequest(kernel, 0, silent=True).run(_SETUP_CODE, 60, None):
                    pass
            if self._settings.functions.functions:
                await self._load_functions(kernel)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def _load_functions(self, kernel: Kernel) -> None:
        if not _same_language("python", kernel.language):
            raise FunctionError(
                f"The kernel {self.kernel_name!r} runs {kernel.language}, but functions need a "
                "Python kernel. Use one, or leave functions out."
            )
        code = code_to_load_functions(self._settings.functions, await self._package_folders(kernel))
        text = ""
        async for event in KernelRequest(kernel, 0, silent=True).run(
            code,
            None if self.timeout is None else max(self.timeout, 60),
            None,
        ):
            if isinstance(event, Output):
                text += event.text
            elif isinstance(event, Ended) and event.exit_code != 0:
                raise FunctionError(f"Functions failed to load: {text}{event.message}")

    async def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        kernel = self._kernel
        if kernel is None:
            raise ExecutorStopped(_STOPPED_MESSAGE)
        run = (
            self._run_in_kernel
            if _same_language(block.language, kernel.language)
            else self._run_other_language
        )
        async with contextlib.aclosing(run(number, block, token)) as events:
            async for event in events:
                yield event

    def _kernel_runs(self, language: str) -> bool:
        return self._kernel is not None and _same_language(language, self._kernel.language)

    async def _run_in_kernel(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        yield Started(number, block.language)
        requested = time.monotonic()
        if not await self._acquire_kernel(token):
            yield Ended(number, EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT)
            return
        try:
            queued = time.monotonic() - requested
            async with contextlib.aclosing(
                self._run_in_free_kernel(number, block, token, queued)
            ) as events:
                async for event in events:
                    yield event
        finally:
            self._kernel_lock.release()

    async def _acquire_kernel(self, token: Token | None) -> bool:
        """Wait until the kernel is free. Return False if `token` was cancelled first."""
        acquired = asyncio.ensure_future(self._kernel_lock.acquire())
        try:
            with on_cancel(token, asyncio.get_running_loop(), acquired.cancel):
                await asyncio.wait([acquired])
        except asyncio.CancelledError:
            if not acquired.cancel() and not acquired.cancelled():
                self._kernel_lock.release()
            raise
        return not acquired.cancelled()

    async def _run_in_free_kernel(
        self, number: int, block: CodeBlock, token: Token | None, queued: float
    ) -> AsyncGenerator[Event, None]:
        """Run a block. Limit its output, save its displays, and measure its usage."""
        limit = TextOutputLimit(number, self.limits.output_bytes)
        shared = self._shared_folder()
        files = DisplayFiles(self.output_dir.absolute(), shared)
        kernel, replaced_notice = await self._live_kernel()
        flush = _FLUSH_CODE if _same_language("python", kernel.language) else ""
        request = KernelRequest(kernel, number, flush)
        saved_in = self._saved_output_folder() if self._settings.save_output else None
        seconds = shortest(self.timeout, self.limits.wall_seconds)
        code = source_to_run(block.code, block.language).encode(errors="replace").decode()
        started, cpu_before = time.monotonic(), kernel.cpu_seconds()
        reconnections = kernel.reconnections
        async with contextlib.AsyncExitStack() as stack:
            saved = stack.enter_context(contextlib.closing(_SavedOutput(saved_in, shared)))
            running = contextlib.aclosing(request.run(code, seconds, token))
            async for event in await stack.enter_async_context(running):
                match event:
                    case Output():
                        saved.add(event)
                        for part in limit.add(event):
                            yield part
                    case Display():
                        for part in save_display(files, event):
                            yield part
                    case Ended():
                        for part in (*limit.finish(), *saved.finish(number)):
                            yield part
                        cpu_seconds = max(0.0, kernel.cpu_seconds() - cpu_before)
                        usage = Usage(time.monotonic() - started, cpu_seconds, 0, queued)
                        reconnected = kernel.reconnections > reconnections
                        notices = [
                            replaced_notice,
                            _RECONNECTED_NOTICE if reconnected and not kernel.is_dead else "",
                            await self._replace_if_dead(request),
                        ]
                        yield replace(event, usage=usage, notice=" ".join(filter(None, notices)))
                    case _:
                        yield event

    async def _live_kernel(self) -> tuple[Kernel, str]:
        """Return the kernel and a notice. Replace the kernel if it died after the last block."""
        kernel = self._kernel
        if kernel is None:
            raise ExecutorStopped(_STOPPED_MESSAGE)
        if not kernel.is_dead:
            return kernel, ""
        new_kernel = await self._replace_kernel(kernel)
        return new_kernel, f"The kernel died after the previous block. {_RESTARTED_NOTICE}"

    async def _replace_if_dead(self, request: KernelRequest) -> str:
        """Replace the kernel of `request` if it has died, and return a notice for the result."""
        if not request.kernel.is_dead:
            return ""
        cause = ""
        if request.ignored_interrupt:
            cause = "The code did not end when it was interrupted. "
        try:
            await self._replace_kernel(request.kernel)
        except ExecutorStopped:
            raise
        except CellblockError as error:  # the next block tries again, and raises the error
            return f"{cause}The kernel is gone and could not be restarted: {error}"
        return cause + _RESTARTED_NOTICE

    async def _replace_kernel(self, kernel: Kernel) -> Kernel:
        await kernel.close()
        if self._kernel is not kernel:
            raise ExecutorStopped(_STOPPED_MESSAGE)
        new_kernel = await self._start_and_prepare_kernel()
        if self._kernel is not kernel:  # stopped meanwhile
            await new_kernel.close()
            raise ExecutorStopped(_STOPPED_MESSAGE)
        self._kernel = new_kernel
        return new_kernel

    def _build_result(self, builder: ResultBuilder) -> SessionCodeResult:
        return builder.session_result(JupyterCodeResult)

    def _to_config(self) -> Config:
        return to_config(self._settings)


class _SavedOutput:
    """Save the full output of one block to a file in `folder`; do nothing if `folder` is None.

    The file stays open: code that can write to the folder could replace it by a link.
    """

    def __init__(self, folder: Path | None, work_dir: Path | None) -> None:
        self._folder = None if folder is None else folder.absolute()
        self._work_dir = work_dir
        self._name = f"output_{secrets.token_hex(8)}.txt"
        self._file: BinaryIO | None = None

    def add(self, output: Output) -> None:
        """Append output to the file. A full disk truncates it, but does not fail the block."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = create_output_file(self._folder, self._name, self._work_dir)
            write_all(self._file.fileno(), output.text.encode(errors="replace"))

    def finish(self, number: int) -> list[FileCreated]:
        """Return an event for the file, if there is one."""
        if self._file is None:
            return []
        return [FileCreated(number, self._name, os.fstat(self._file.fileno()).st_size)]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _same_language(tag: str, language: str) -> bool:
    """Return True if `tag` names the kernel's `language`, under any of its names."""
    tag, language = tag.strip().lower(), language.lower()
    if not tag or not language:
        return False
    known = find_language(tag)
    # A bash kernel also runs blocks for the plain shell.
    return (
        tag == language
        or (known is not None and known is find_language(language))
        or (tag, language) in _SHELL_TAGS
    )
