"""CodeSessionTool: a model runs Python code in a live session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from pydantic import BaseModel, Field

from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..components import SavedComponent
from ..executors.base import CodeExecutor
from ..executors.places.base import has_network
from ..models.image import Image
from ..observation import MAX_CHARACTERS, observe
from .base import BaseTool
from .code_execution import CodeExecutionInput
from .tool_result import ImageResultContent, ResultContent

_DESCRIPTION = (
    "Execute Python code in a live session. Variables, imports and files stay from call to call. "
    "Returns what the code prints, the value of its last expression, the files that it creates and "
    "the pictures that it displays."
)


class CodeSessionResult(BaseModel):
    """What the code did.

    success   True if its exit code is 0
    output    what the model is shown: output, files, limits, notices of the session
    files     the files that it created or changed, relative to the work folder
    images    the pictures that it displayed
    """

    success: bool
    output: str
    files: list[str] = Field(default_factory=list[str])
    images: list[Image] = Field(default_factory=list[Image])


class CodeSessionTool(BaseTool[CodeExecutionInput, CodeSessionResult]):
    """Run Python code in the live session of `executor`. The model sees output, files and pictures.

    max_characters   the most characters of output that the model is shown; None means all

    Raise `ValueError` if `executor` is not live. Other errors are those of the executor, which
    starts itself at the first call. Stop it when the tool is no longer needed.
    """

    def __init__(
        self,
        executor: CodeExecutor,
        *,
        name: str = "CodeSession",
        description: str = _DESCRIPTION,
        max_characters: int | None = MAX_CHARACTERS,
    ) -> None:
        if not executor.is_live:
            raise ValueError(
                f"A {type(executor).__name__} has no live session. Pass an executor such as "
                "SandboxSessionCodeExecutor, or use PythonCodeExecutionTool."
            )
        if max_characters is not None and max_characters < 1:
            raise ValueError(f"max_characters must be at least 1 or None, not {max_characters}.")
        super().__init__(CodeExecutionInput, CodeSessionResult, name, description)
        self._executor = executor
        self._max_characters = max_characters

    async def run(
        self, args: CodeExecutionInput, cancellation_token: CancellationToken
    ) -> CodeSessionResult:
        """Run the code and return what it did."""
        block = CodeBlock(code=args.code, language="python")
        result = await self._executor.execute_code_blocks([block], cancellation_token)
        shown = observe(
            result,
            max_characters=self._max_characters,
            has_network=has_network(self._executor),
        )
        images = [Image.from_bytes(each.data, each.mime_type) for each in shown.pictures]
        return CodeSessionResult(
            success=result.exit_code == 0,
            output=shown.text,
            files=list(result.files),
            images=images,
        )

    def return_value_as_string(self, value: Any) -> str:
        """Return the output."""
        return value.output if isinstance(value, CodeSessionResult) else str(value)

    def return_value_as_contents(self, value: Any) -> list[ResultContent]:
        """Return the output, then the pictures."""
        pictures = value.images if isinstance(value, CodeSessionResult) else []
        contents = super().return_value_as_contents(value)
        return [*contents, *(ImageResultContent(content=image) for image in pictures)]

    def is_failure(self, value: Any) -> bool:
        """Return True if the code failed."""
        return isinstance(value, CodeSessionResult) and not value.success

    def _to_config(self) -> dict[str, object]:
        return {
            "executor": self._executor.dump_component().to_dict(),
            "name": self.name,
            "description": self.description,
            "max_characters": self._max_characters,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        options = {name: value for name, value in config.items() if name != "executor"}
        executor = CodeExecutor.load_component(cast(SavedComponent, config["executor"]))
        return cls(executor, **cast(dict[str, Any], options))
