"""FunctionSession: a live session whose code can call functions of this process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from ..aio.background_loop import background_loop
from ..aio.shielded import wait_shielded
from ..blocks import CodeBlock
from ..cancellation import ABANDONED_GRACE, CancellationToken, on_cancel
from ..errors import SessionError
from ..executors.run_options import RunOptions
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from ..executors.session.settings import InputPrompt
from ..results import SessionCodeResult
from ..runtime.protocol import MAX_FRAME
from . import plain_values
from .plain_values import plain_value
from .stopping import IsStopped, until_stopped

# Runs in the sandbox, after the source of `plain_values`. A call is the prompt of an `input()`, and
# its result the answer: both JSON.
_DEFINE = """\
def define_functions(variables, marker, names):
    import builtins, json, threading
    lock = threading.Lock()

    def plain(value):
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(
            f"{type(value).__name__} objects cannot leave the sandbox. "
            "Pass text, numbers, lists or dictionaries."
        )

    def define(name):
        def call(*args, **kwargs):
            request = marker + json.dumps(plain_value([name, args, kwargs]), default=plain)
            with lock:
                answer = json.loads(builtins.input(request))
            if "error" in answer:
                raise RuntimeError(answer["error"])
            if "value" not in answer:
                raise SystemExit(0)
            return answer["value"]

        call.__name__ = call.__qualname__ = name
        variables[name] = call

    for name in names:
        define(name)
"""
# The file name is that of no file, so that tracebacks for models leave out what is above. The code
# before may have given any global name, such as `print`, another meaning.
_DEFINE_ALL = """\
(lambda names, scope: names.exec(names.compile({source!r}, "<frozen functions>", "exec"), scope)
    or scope["define_functions"](names.globals(), {marker!r}, {names!r}))(
        __import__("builtins"), {{}})
__import__("sys").stdout.write(f"{{__import__('IPython').get_ipython().execution_count}}")
"""


class BlockEnded(Exception):
    """A function raises it to end the block that has called it. `value` is the block's result."""

    def __init__(self, value: object) -> None:
        super().__init__("The block has its result.")
        self.value = value


@dataclass(frozen=True)
class FunctionBlock:
    """What a block did.

    end     there if a function has ended it
    value   that of its last expression: a JSON value, or the text that shows it
    """

    result: SessionCodeResult
    end: BlockEnded | None
    value: object

    @property
    def printed(self) -> str:
        """The output without the value at its end."""
        if self.value is None:
            return self.result.output
        shown = self.result.displays[-1].get("text/plain")
        return self.result.output.removesuffix(f"{shown}\n")


class _Calls:
    """The calls of functions by one block, one after the other. After `stop`, none begins.

    What a function returns to be awaited runs on the loop of the caller, if it has one, and
    otherwise on a loop of its own. If the block is stopped, so are blocks that its functions run.
    """

    def __init__(self, flag: IsStopped) -> None:
        self.end: BlockEnded | None = None
        loop = asyncio.get_running_loop()
        self._loop = None if loop is background_loop().loop else loop
        self._flag, self._outer = flag, _calls_of_block.get()
        self._token, self._lock = CancellationToken(), threading.Lock()

    def is_stopped(self) -> bool:
        """Return True if the block has to end."""
        return self._flag() or (self._outer is not None and self._outer.is_closed())

    def is_closed(self) -> bool:
        """Return True if no function is called any more."""
        return self._token.is_cancelled() or self.is_stopped()

    def call(self, function: Callable[..., object], args: Any, options: Any) -> object:
        """Call a function in this thread, and return its result."""
        with self._lock:
            if self.is_closed():
                raise RuntimeError("The block was stopped.")
            value = function(*args, **options)
            if not inspect.isawaitable(value):
                return value
            work = _wait_for(value, self._token)
            if self._loop is None:
                return asyncio.run(work)
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def stop(self) -> None:
        """Cancel what is awaited. Wait for a call that runs: 5 s at most, if it is a plain one."""
        self._token.cancel()
        if self._lock.locked():
            await wait_shielded(asyncio.to_thread(self._wait_for_end))

    def _wait_for_end(self) -> None:
        if self._lock.acquire(timeout=ABANDONED_GRACE):
            self._lock.release()


# Of the block that has called the function that runs in this context.
_calls_of_block: ContextVar[_Calls | None] = ContextVar("_calls_of_block", default=None)


class FunctionSession:
    """A live session whose code can call `functions` of this process by name.

    Arguments and results cross as the JSON of `plain_value`. Code can call what `functions` holds,
    and nothing else. A function runs in a thread, with the context variables of the caller of
    `run`; what it returns to be awaited runs on the loop of that caller, if it has one. Its time is
    not time of the block. What it raises is a `RuntimeError` in the code.

    The parameters are those of `SandboxSessionCodeExecutor` without `input_callback`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.functions: dict[str, Callable[..., object]] = {}
        self._marker = secrets.token_hex()
        self._calls: _Calls | None = None  # of the last block
        self._lock = asyncio.Lock()  # held by a block, with what prepares it
        self._session = SandboxSessionCodeExecutor(*args, **options, input_callback=self._answer)

    async def start(self) -> None:
        """Start the session. Do nothing if it is started."""
        await self._session.start()

    async def stop(self) -> None:
        """Stop the session. A block that runs raises `ExecutorStopped`."""

        async def stop() -> None:
            await self._session.stop()
            if self._calls is not None:
                await self._calls.stop()

        await background_loop().call(stop())

    async def set(self, name: str, value: object) -> None:
        """Set a variable to the `plain_value`, as `SandboxSessionCodeExecutor.set` does."""
        with contextlib.suppress(RecursionError):  # then that raises
            value = plain_value(value)
        await self._session.set(name, value)

    async def run(self, code: str, is_stopped: IsStopped = lambda: False) -> FunctionBlock:
        """Run a block of Python.

        Raise the errors of `CodeExecutor.execute_code_blocks`, and `EOFError` if the code calls
        `input()`: nobody answers. After `is_stopped()` is true, no function is called, and the run
        is cancelled. A cancelled run has ended when `CancelledError` is raised; only a plain
        function that was called before, and takes more than 5 s, is left to its thread.
        """
        calls = _Calls(is_stopped)
        work = self._run(code, calls)
        return await background_loop().call(until_stopped(work, calls.is_stopped))

    async def _run(self, code: str, calls: _Calls) -> FunctionBlock:
        async with self._lock:
            self._calls, names = calls, list(self.functions)
            _calls_of_block.set(calls)
            source = inspect.getsource(plain_values) + _DEFINE
            define = _DEFINE_ALL.format(source=source, marker=self._marker, names=names)
            try:
                number = (await self._run_block(define, is_silent=True)).check().output
                result = await self._run_block(code)
            except BaseException:
                await calls.stop()
                raise
            return FunctionBlock(result, calls.end, await self._value(f"_{number}", result))

    async def _run_block(self, code: str, *, is_silent: bool = False) -> SessionCodeResult:
        options = RunOptions(is_silent=is_silent, input_is_timed=False)
        running = self._session.run_blocks([CodeBlock(code, "python")], None, options)
        return cast(SessionCodeResult, await running)

    async def _value(self, name: str, result: SessionCodeResult) -> object:
        """Return the value that IPython has kept as the variable `name`, if the block showed it."""
        if not result.displays:
            return None
        try:
            value = await self._session.get(name)
            json.dumps(value)  # a table cannot
        except KeyError:
            return None
        except (SessionError, TypeError):
            return result.displays[-1].get("text/plain")
        return value

    def _answer(self, prompt: InputPrompt) -> str:
        if not prompt.startswith(self._marker):
            raise EOFError("input() is not available here.")
        answer = json.dumps(self._answer_call(prompt[len(self._marker) :]))
        if len(answer) >= MAX_FRAME:
            return json.dumps({"error": f"The result is larger than {MAX_FRAME} bytes."})
        return answer

    def _answer_call(self, request: str) -> Mapping[str, object]:
        calls = _calls_of_block.get()
        assert calls is not None
        try:
            match json.loads(request):
                case [str(name), [*args], {**options}] if name in self.functions:
                    value = plain_value(calls.call(self.functions[name], args, options))
                case _:
                    raise ValueError("There is no such function.")
            json.dumps(value)  # may raise
            return {"value": value}
        except BlockEnded as end:
            calls.end = end
            return {}
        except (Exception, asyncio.CancelledError) as error:  # of a function: the code is told
            return {"error": f"{type(error).__name__}: {error}"}


async def _wait_for(value: Awaitable[object], token: CancellationToken) -> object:
    waiting = asyncio.ensure_future(value)
    with on_cancel(token, asyncio.get_running_loop(), waiting.cancel):
        return await waiting
