"""What an executor of AutoGen 0.2 is: its methods, its results, its configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

from ...blocks import CodeBlock
from ...results import CodeResult, CommandLineCodeResult, SessionCodeResult

__all__ = [
    "CodeBlock",
    "CodeExecutionConfig",
    "CodeExecutor",
    "CodeExtractor",
    "CodeResult",
    "CommandLineCodeResult",
    "IPythonCodeResult",
]

_HTML_SUFFIXES = (".html", ".htm")


@runtime_checkable
class CodeExtractor(Protocol):
    """What finds the code in a message."""

    def extract_code_blocks(self, message: str | list[Any] | None) -> list[CodeBlock]:
        """Return the code blocks of `message`: a text, the parts of a message, or None."""
        ...


@runtime_checkable
class CodeExecutor(Protocol):
    """The interface of what runs code blocks. Your own executor needs these three methods."""

    @property
    def code_extractor(self) -> CodeExtractor:
        """What finds the code in a message."""
        ...

    def execute_code_blocks(self, code_blocks: list[CodeBlock]) -> CodeResult:
        """Run the blocks in order and return their result."""
        ...

    def restart(self) -> None:
        """Forget what blocks have left behind, except files."""
        ...


@dataclass(repr=False)
class IPythonCodeResult(CodeResult):
    """The result of a Jupyter kernel. `output_files` are the pictures and pages it displayed."""

    output_files: list[str] = field(default_factory=list[str])


def result_text(result: Any) -> str:
    """Return the output of `result`, and where the pictures and pages of a live session are."""
    output = str(result.output)
    if not isinstance(result, SessionCodeResult) or not result.output_files:
        return output
    lines = [
        f"{'HTML' if path.suffix in _HTML_SUFFIXES else 'Image'} data saved to {path}"
        for path in result.output_files
    ]
    return "\n".join([output.removesuffix("\n"), *lines] if output else lines)


CodeExecutionConfig = TypedDict(
    "CodeExecutionConfig",
    {
        "executor": Literal["ipython-embedded", "commandline-local"] | CodeExecutor,
        "last_n_messages": int | Literal["auto"],
        "timeout": int,
        "use_docker": bool | str | list[str],
        "work_dir": str,
        "ipython-embedded": dict[str, Any],
        "commandline-local": dict[str, Any],
    },
    total=False,
)
"""A `code_execution_config`."""
