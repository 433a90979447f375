"""FunctionSession: a live session whose code can call functions of this process."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..aio.background_loop import background_loop
from ..blocks import CodeBlock
from ..errors import SessionError
from ..executors.run_options import RunOptions
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from ..executors.session.settings import InputPrompt
from ..results import SessionCodeResult
from ..runtime.protocol import MAX_FRAME

# Runs in the sandbox. A call is the prompt of an `input()`, and its result the answer: both JSON.
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
            request = marker + json.dumps([name, args, kwargs], default=plain)
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


class FunctionSession:
    """A live session, without `await`, whose code can call `functions` of this process by name.

    Arguments and results cross as JSON. Code can call what `functions` holds, and nothing else. A
    function runs in a thread, with the context variables of the caller of `run`. Its time is not
    time of the block. What it raises is a `RuntimeError` in the code.

    The parameters are those of `SandboxSessionCodeExecutor` without `input_callback`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.functions: dict[str, Callable[..., object]] = {}
        self._marker = secrets.token_hex()
        self._end: BlockEnded | None = None
        self._session = SandboxSessionCodeExecutor(*args, **options, input_callback=self._answer)

    def start(self) -> None:
        """Start the session. Do nothing if it is started."""
        background_loop().run(self._session.start())

    def stop(self) -> None:
        """Stop the session."""
        background_loop().run(self._session.stop())

    def set(self, name: str, value: object) -> None:
        """Set a variable. Raise what `SandboxSessionCodeExecutor.set` raises."""
        background_loop().run(self._session.set(name, value))

    def run(self, code: str) -> FunctionBlock:
        """Run a block of Python.

        Raise the errors of `CodeExecutor.execute_code_blocks`, and `EOFError` if the code calls
        `input()`: nobody answers.
        """
        self._end = None
        names = list(self.functions)
        define = _DEFINE_ALL.format(source=_DEFINE, marker=self._marker, names=names)
        number = self._run_block(define, is_silent=True).check().output
        result = self._run_block(code)
        return FunctionBlock(result, self._end, self._value(f"_{number}", result))

    def _run_block(self, code: str, *, is_silent: bool = False) -> SessionCodeResult:
        options = RunOptions(is_silent=is_silent, input_is_timed=False)
        running = self._session.run_blocks([CodeBlock(code, "python")], None, options)
        return cast(SessionCodeResult, background_loop().run(running))

    def _value(self, name: str, result: SessionCodeResult) -> object:
        """Return the value that IPython has kept as the variable `name`, if the block showed it."""
        if not result.displays:
            return None
        try:
            value = background_loop().run(self._session.get(name))
            json.dumps(value)  # a table cannot
        except KeyError:
            return None
        except (SessionError, TypeError):
            return result.displays[-1].get("text/plain")
        return value

    def _answer(self, prompt: InputPrompt) -> str:
        if not prompt.startswith(self._marker):
            raise EOFError("input() is not available here.")
        answer = json.dumps(self._call(prompt[len(self._marker) :]))
        if len(answer) >= MAX_FRAME:
            return json.dumps({"error": f"The result is larger than {MAX_FRAME} bytes."})
        return answer

    def _call(self, request: str) -> Mapping[str, object]:
        try:
            match json.loads(request):
                case [str(name), [*args], {**options}] if name in self.functions:
                    value = self.functions[name](*args, **options)
                case _:
                    raise ValueError("There is no such function.")
            if inspect.isawaitable(value):
                value = asyncio.run(_wait_for(value))
            json.dumps(value)  # may raise
            return {"value": value}
        except BlockEnded as end:
            self._end = end
            return {}
        except Exception as error:  # of any function: the code is told
            return {"error": f"{type(error).__name__}: {error}"}


async def _wait_for(value: Awaitable[object]) -> object:
    return await value
