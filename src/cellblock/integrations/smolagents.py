"""CellblockPythonExecutor: run the code of a `CodeAgent` in the sandbox. Needs `smolagents`."""

# smolagents is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

from ..aio.background_loop import background_loop
from ..errors import UnsupportedValue
from ..observation import observe
from .host_functions import BlockEnded, FunctionSession

_log = logging.getLogger(__name__)


class CellblockPythonExecutor(PythonExecutor):
    """Run the code of a `CodeAgent` in a live session of the sandbox. Its tools stay here.

        from cellblock.integrations.smolagents import CellblockPythonExecutor
        agent = CodeAgent(tools, model, executor=CellblockPythonExecutor())

    The code calls tools, MCP tools and managed agents by name; arguments and results cross as JSON.
    It can import what is installed: `additional_authorized_imports=["*"]` tells the model so. The
    agent's `with` block, or its `cleanup`, ends the session. The parameters are those of
    `SandboxSessionCodeExecutor` without `input_callback`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._session = FunctionSession(*args, **options)

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Let the code call `tools`, and nothing else of this process."""
        self._session.functions = dict(tools)
        if final := tools.get("final_answer"):
            self._session.functions["final_answer"] = _ending(final)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Set the variables that can cross. Log those that cannot."""
        for name, value in variables.items():
            try:
                background_loop().run(self._session.set(name, value))
            except (UnsupportedValue, ValueError) as error:
                _log.warning("The code does not get the variable %r: %s", name, error)

    def __call__(self, code_action: str) -> CodeOutput:
        """Run the code. Raise `InterpreterError` with its output if it fails.

        It ends if the agent that has called this method is interrupted.
        """
        agent = sys._getframe(1).f_locals.get("self")  # no argument says which one it is
        running = self._session.run(code_action, lambda: getattr(agent, "interrupt_switch", False))
        try:
            block = background_loop().run(running)
        except EOFError as error:
            raise InterpreterError(str(error)) from error
        except asyncio.CancelledError as error:
            raise InterpreterError("The agent was interrupted.") from error
        if block.end is not None:
            return CodeOutput(block.end.value, block.result.output, is_final_answer=True)
        if block.result.exit_code != 0:
            raise InterpreterError(observe(block.result).text)
        return CodeOutput(block.value, block.printed, is_final_answer=False)

    def cleanup(self) -> None:
        """End the session."""
        background_loop().run(self._session.stop())


def _ending(tool: Callable[..., Any]) -> Callable[..., Any]:
    def final_answer(*args: Any, **options: Any) -> None:
        raise BlockEnded(tool(*args, **options))

    return final_answer
