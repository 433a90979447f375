"""CellblockInterpreter: run the code of DSPy's modules in the sandbox. Needs `dspy`."""

# DSPy is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput

from ..aio.background_loop import background_loop
from ..errors import CellblockError
from ..observation import observe
from .host_functions import BlockEnded, FunctionBlock, FunctionSession

_SYNTAX_ERROR = re.compile(r"^(?:Syntax|Indentation|Tab)Error: .*", re.MULTILINE)
Fields = Sequence[Mapping[str, str]]


class CellblockInterpreter:
    """Run the code of RLM, CodeAct, ProgramOfThought and Flex in a live session of the sandbox.

        from cellblock.integrations.dspy import CellblockInterpreter
        dspy.configure(interpreter_factory=CellblockInterpreter)

    Tools and models are called in this process; arguments and results cross as JSON. The other
    parameters are those of `SandboxSessionCodeExecutor` without `input_callback`:
    `interpreter_factory=functools.partial(CellblockInterpreter, timeout=20)`.
    """

    execution_instructions = (
        "Code runs as Python in a live session of a sandbox, without a network. Variables, imports "
        "and functions persist. Tools and SUBMIT are global functions."
    )

    def __init__(
        self,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        output_fields: Fields | None = None,
        **options: Any,
    ) -> None:
        self.tools = dict(tools or {})
        self.output_fields = output_fields
        self._session = FunctionSession(**options)
        self._is_ended = False

    def start(self) -> None:
        """Start the session. Do nothing if it is started. Raise `CodeInterpreterError`."""
        self._check_alive()
        try:
            background_loop().run(self._session.start())
        except CellblockError as error:
            raise CodeInterpreterError(str(error)) from error

    def execute(self, code: str, variables: Mapping[str, Any] | None = None) -> Any:
        """Run code. Return what it gives to `SUBMIT`, its value if that is text, or its output.

        Raise `SyntaxError`, or `CodeExecutionError` if the code fails. Raise `CodeInterpreterError`
        if a variable cannot cross, or if the session has ended or lost its variables.
        """
        self._check_alive()
        tools = {name: _naming_arguments(tool) for name, tool in self.tools.items()}
        self._session.functions = {**tools, "SUBMIT": self._submit}
        try:
            for name, value in (variables or {}).items():
                background_loop().run(self._session.set(name, value))
            block = background_loop().run(self._session.run(code))
        except EOFError as error:
            raise CodeExecutionError(str(error)) from error
        except (CellblockError, ValueError) as error:
            raise CodeInterpreterError(str(error)) from error
        return self._result(block)

    def shutdown(self) -> None:
        """End the session, and the code that runs in it."""
        self._is_ended = True
        background_loop().run(self._session.stop())

    def _check_alive(self) -> None:
        if self._is_ended:
            raise CodeInterpreterError("The session of this interpreter has ended. Make a new one.")

    def _result(self, block: FunctionBlock) -> Any:
        output = block.result.output
        if block.result.lost_blocks:
            self.shutdown()  # to go on without variables would mislead the code
            raise CodeInterpreterError(output)
        if block.end is not None:
            return FinalOutput(block.end.value)
        if block.result.exit_code != 0:
            if error := _SYNTAX_ERROR.search(output):
                raise SyntaxError(error[0])
            raise CodeExecutionError(observe(block.result).text)
        return block.value if isinstance(block.value, str) else output.rstrip("\n") or None

    def _submit(self, *values: Any, **named: Any) -> None:
        names = [field["name"] for field in self.output_fields or [{"name": "output"}]]
        outputs = {**dict(zip(names, values, strict=False)), **named}
        if len(values) + len(named) != len(names) or outputs.keys() != set(names):
            raise TypeError(f"SUBMIT takes these values, each once: {', '.join(names)}.")
        raise BlockEnded(outputs)


def _naming_arguments(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that also takes positional arguments, as what it wraps does: RLM's do not."""
    if not hasattr(tool, "__wrapped__"):
        return tool

    def call(*values: Any, **named: Any) -> Any:
        return tool(**inspect.signature(tool).bind(*values, **named).arguments)

    return call
