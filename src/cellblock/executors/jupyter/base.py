"""The executors of Jupyter kernels: each block is a request to one live kernel."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import tempfile
import time
import weakref
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ...blocks import CodeBlock, silence_pip
from ...cancellation import Token, heeding
from ...errors import BackendLost, CellblockError, FunctionError
from ...events import Display, Ended, Event, FileCreated, Output, Started, Usage
from ...functions.module import FUNCTION_PROMPT_TEMPLATE, Function, FunctionModule
from ...languages import find_language
from ...limits import Limits
from ...results import CodeResult, Folder, JupyterCodeResult
from ...runtime.linux.rmtree import remove_tree
from ..base import CodeExecutor
from ..command_line.base import truth
from ..displays import DisplayFiles
from ..frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED
from .kernel import LiveKernel
from .output_limit import Cap
from .request import Conversation

_STOPPED = "The executor was stopped."
_RESTARTED = "The kernel was restarted: its variables are gone."
_DROPPED = "The connection to the kernel dropped during the block and was made again: output may be missing."
_SHELLS = (("sh", "bash"), ("shell", "bash"))

# IPython's advice to whoever calls sys.exit() at its prompt is of no use in a block.
_PREPARE = """__import__("warnings").filterwarnings("ignore", "To exit: use 'exit'")"""
# ipykernel reads what child processes print in threads of its own, and the end of a request does not wait for them.
_FLUSH = """__import__("time").sleep(0.005)"""
# Our text as JSON inside a Python literal: nothing in it can end the literal.
_LOAD = """
def _cellblock_load():
    import json, linecache, sys, types
    name, source, folders = json.loads({data!r})
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    module = types.ModuleType(name)
    module.__file__ = f"<{{name}}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(True), module.__file__)
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
_cellblock_load()
del _cellblock_load
"""


class KernelExecutor(CodeExecutor):
    """What the executors of Jupyter kernels share. The parameters of all of them:

    kernel_name        the kernel's name, as `jupyter kernelspec list` has it
    timeout            seconds that one block may run; at least 1
    output_dir         where pictures and pages that blocks show are saved; `None`: a temporary folder, removed by `stop`
    functions          functions that blocks of a Python kernel can import from the module `functions_module`
    limits             `wall_seconds` and `output_bytes` hold for one block
    save_output        keep the whole output of each block in a file `output_….txt` in the work folder

    A block that is over its time, or cancelled, is interrupted. Code that goes on nevertheless ends with its kernel, and so
    does a kernel that dies: then a new one takes its place, without the variables, and `notice` of the result says so.
    `sys.exit(3)` ends the block with exit code 3, and leaves the kernel alive. Calls at the same time wait for each other.
    """

    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE
    is_live: ClassVar[bool] = True

    def __init__(
        self,
        kernel_name: str,
        timeout: float,
        output_dir: str | os.PathLike[str] | None,
        *,
        functions: Sequence[Function],
        functions_module: str,
        limits: Limits,
        save_output: bool,
    ) -> None:
        super().__init__()
        if isinstance(timeout, bool) or not timeout >= 1:
            raise ValueError("Timeout must be greater than or equal to 1.")
        if not isinstance(kernel_name, str) or not kernel_name:  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"kernel_name must be the name of a kernel, not {kernel_name!r}.")
        self._kernel_name = kernel_name
        self._timeout = timeout
        self._module = FunctionModule(functions, functions_module)
        self._limits = limits
        self._save_output = truth("save_output", save_output)
        self._given_output_dir = None if output_dir is None else Path(output_dir)
        self._temporary: Path | None = None
        self._remove_temporary: weakref.finalize[[str], Any] | None = None
        self._kernel: LiveKernel | None = None
        # A kernel runs one request at a time, and its limit counts from when it begins.
        self._turn = asyncio.Lock()

    @property
    def kernel_name(self) -> str:
        """The name of the kernel."""
        return self._kernel_name

    @property
    def timeout(self) -> float:
        """Seconds that one block may run."""
        return self._timeout

    @property
    def limits(self) -> Limits:
        """How much one block may use."""
        return self._limits

    @property
    def functions_module(self) -> str:
        """The name of the module that holds the functions."""
        return self._module.module_name

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions that blocks can import."""
        return self._module.functions

    @property
    def output_dir(self) -> Path:
        """Where pictures and pages are saved."""
        if self._given_output_dir is not None:
            return self._given_output_dir
        if self._temporary is None or not self._temporary.exists():
            self._temporary = Path(tempfile.mkdtemp(prefix="cellblock-shown-"))
            self._remove_temporary = weakref.finalize(self, remove_tree, str(self._temporary))
        return self._temporary

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Describe the functions for a model; the template has `$module_name` and `$functions`."""
        return self._module.format_for_prompt(prompt_template)

    # what the kinds of executors fill in

    @abstractmethod
    async def _make_kernel(self) -> LiveKernel:
        """Give a new kernel, ready. Raises `BackendError`, and leaves nothing behind then."""

    @abstractmethod
    def _run_other(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run a block in a language that is not the kernel's."""

    @abstractmethod
    def _save_folder(self) -> Path:
        """Give the folder in which the whole output is saved when asked."""

    async def _package_folders(self, kernel: LiveKernel) -> list[str]:
        """Give the folders that hold the packages of the functions."""
        return []

    # the template

    async def _open(self) -> None:
        self._kernel = await self._ready_kernel()

    async def _close(self, *, restarting: bool) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.close()
        if not restarting and self._remove_temporary is not None:
            await asyncio.to_thread(self._remove_temporary)
            self._remove_temporary = self._temporary = None

    async def _ready_kernel(self) -> LiveKernel:
        kernel = await self._make_kernel()
        try:
            if _same_language("python", kernel.language):
                async for _ in Conversation(kernel, 0).events(_PREPARE, 60, None):
                    pass
            if self._module.functions:
                await self._load_functions(kernel)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def _load_functions(self, kernel: LiveKernel) -> None:
        if not _same_language("python", kernel.language):
            raise FunctionError(
                f"The kernel {self._kernel_name!r} runs {kernel.language}: only Python has our functions."
            )
        data = json.dumps(
            [self._module.module_name, self._module.source, await self._package_folders(kernel)]
        )
        text = ""
        async for event in Conversation(kernel, 0).events(
            _LOAD.format(data=data), max(self._timeout, 60), None
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
            raise BackendLost(_STOPPED)
        run = self._run_here if _same_language(block.language, kernel.language) else self._run_other
        async with contextlib.aclosing(run(number, block, token)) as events:
            async for event in events:
                yield event

    async def _run_here(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        yield Started(number, block.language)
        asked = time.monotonic()
        if not await self._get_turn(token):
            yield Ended(number, EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT)
            return
        try:
            queued = time.monotonic() - asked
            async with contextlib.aclosing(self._shaped(number, block, token, queued)) as events:
                async for event in events:
                    yield event
        finally:
            self._turn.release()

    async def _get_turn(self, token: Token | None) -> bool:
        """Wait for the kernel to be free; tell whether that came before the cancellation."""
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            with heeding(token, asyncio.get_running_loop(), turn.cancel):
                await asyncio.wait([turn])
        except asyncio.CancelledError:
            if not turn.cancel() and not turn.cancelled():
                self._turn.release()
            raise
        return not turn.cancelled()

    async def _shaped(
        self, number: int, block: CodeBlock, token: Token | None, queued: float
    ) -> AsyncGenerator[Event, None]:
        """Run a block and give its events as the result is to have them: output capped, displays saved, use measured."""
        cap, files = Cap(number, self._limits.output_bytes), DisplayFiles(self.output_dir)
        kernel, notice = await self._living_kernel()
        flush = _FLUSH if _same_language("python", kernel.language) else ""
        conversation = Conversation(kernel, number, flush)
        saved = _Saved(self._save_folder() if self._save_output else None)
        seconds = min(self._timeout, self._limits.wall_seconds or self._timeout)
        begun, used, drops = time.monotonic(), kernel.cpu_seconds(), kernel.drops
        code = silence_pip(block.code, block.language).encode(errors="replace").decode()
        async with contextlib.aclosing(conversation.events(code, seconds, token)) as events:
            async for event in events:
                match event:
                    case Output():
                        saved.add(event)
                        for part in cap.add(event):
                            yield part
                    case Display():
                        yield replace(event, files=files.save(event.data))
                    case Ended():
                        for part in (*cap.end(), *saved.end(number)):
                            yield part
                        usage = Usage(
                            time.monotonic() - begun,
                            max(0.0, kernel.cpu_seconds() - used),
                            0,
                            queued,
                        )
                        dropped = (
                            _DROPPED if kernel.drops > drops and kernel.inbox.death is None else ""
                        )
                        notices = [
                            notice,
                            dropped,
                            await self._revive(kernel, deaf=conversation.deaf),
                        ]
                        yield replace(event, usage=usage, notice=" ".join(filter(None, notices)))
                    case _:
                        yield event

    async def _living_kernel(self) -> tuple[LiveKernel, str]:
        """Give the kernel, or another one if it died since the last block, and what is to be told of that."""
        kernel = self._kernel
        if kernel is None:
            raise BackendLost(_STOPPED)
        if kernel.inbox.death is None:
            return kernel, ""
        return await self._replace(
            kernel
        ), f"The kernel had ended after the block before. {_RESTARTED}"

    async def _revive(self, kernel: LiveKernel, *, deaf: bool) -> str:
        """After a block: have another kernel if this one is gone, and give what is to be told of that."""
        if kernel.inbox.death is None:
            return ""
        why = "The code did not end when it was interrupted. " if deaf else ""
        try:
            await self._replace(kernel)
        except BackendLost:
            raise
        except CellblockError as error:  # the next block tries again, and says so for itself
            return f"{why}The kernel is gone and could not be started again: {error}"
        return why + _RESTARTED

    async def _replace(self, kernel: LiveKernel) -> LiveKernel:
        await kernel.close()
        if self._kernel is not kernel:
            raise BackendLost(_STOPPED)
        fresh = await self._ready_kernel()
        if self._kernel is not kernel:  # stopped meanwhile
            await fresh.close()
            raise BackendLost(_STOPPED)
        self._kernel = fresh
        return fresh

    def _result(self, folder: Folder) -> CodeResult:
        return folder.session_result(JupyterCodeResult)

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        given = self._given_output_dir
        return {
            "kernel_name": self._kernel_name,
            "timeout": self._timeout,
            "output_dir": None if given is None else str(given),
            "functions": self._module.to_list(),
            "functions_module": self._module.module_name,
            "limits": self._limits.to_dict(),
            "save_output": self._save_output,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        values = dict(config)
        module = values.get("functions_module", "functions")
        if (functions := values.pop("functions", None)) is not None:
            values["functions"] = FunctionModule.from_list(functions, module).functions
        if (limits := values.pop("limits", None)) is not None:
            values["limits"] = Limits.from_dict(limits)
        return cls(**values)


class _Saved:
    """The whole output of one block, as a file in `folder`; nothing without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / f"output_{secrets.token_hex(8)}.txt"

    def add(self, output: Output) -> None:
        """Append to it. A full disk makes it shorter, and is no reason for the block to fail."""
        if self._path is not None:
            with contextlib.suppress(OSError), open(self._path, "ab") as file:
                file.write(output.text.encode(errors="replace"))

    def end(self, number: int) -> list[FileCreated]:
        """Tell of it, if there is one."""
        if self._path is None or not self._path.exists():
            return []
        return [FileCreated(number, self._path.name, self._path.stat().st_size)]


def _same_language(tag: str, language: str) -> bool:
    """Tell whether a block with `tag` is one for a kernel that runs `language`, under any of their names."""
    tag, language = tag.strip().lower(), language.lower()
    if not tag or not language:
        return False
    known = find_language(tag)
    # What is written for the plain shell is what bash understands as well.
    return (
        tag == language
        or (known is not None and known is find_language(language))
        or (tag, language) in _SHELLS
    )
