"""PythonCodeExecutionTool: a model runs Python code in an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from pydantic import BaseModel, Field

from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..components import SavedComponent
from ..executors.base import CodeExecutor
from ..executors.places.base import has_network
from ..observation import network_note
from .base import BaseTool


class CodeExecutionInput(BaseModel):
    """The arguments of `PythonCodeExecutionTool` and `CodeSessionTool`."""

    code: str = Field(description="The contents of the Python code block that should be executed")


class CodeExecutionResult(BaseModel):
    """What the code printed. `success` is True if its exit code is 0."""

    success: bool
    output: str


class PythonCodeExecutionTool(BaseTool[CodeExecutionInput, CodeExecutionResult]):
    """Run Python code in `executor`. Like AutoGen's, it shows the model only the output.

    Code that fails without output is an empty text. `CodeSessionTool` says the exit code. Errors
    are those of the executor.
    """

    def __init__(self, executor: CodeExecutor) -> None:
        super().__init__(
            CodeExecutionInput, CodeExecutionResult, "CodeExecutor", "Execute Python code blocks."
        )
        self._executor = executor

    async def run(
        self, args: CodeExecutionInput, cancellation_token: CancellationToken
    ) -> CodeExecutionResult:
        """Run the code and return its output."""
        block = CodeBlock(code=args.code, language="python")
        result = await self._executor.execute_code_blocks([block], cancellation_token)
        note = network_note(result.output, has_network=has_network(self._executor))
        output = f"{result.output.rstrip()}\n{note}" if note else result.output
        return CodeExecutionResult(success=result.exit_code == 0, output=output)

    def return_value_as_string(self, value: Any) -> str:
        """Return the output."""
        return value.output if isinstance(value, CodeExecutionResult) else str(value)

    def _to_config(self) -> dict[str, object]:
        executor = self._executor.dump_component().to_dict()
        return {"executor": executor, "description": self.description}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        # The description is always the same one.
        return cls(CodeExecutor.load_component(cast(SavedComponent, config["executor"])))
