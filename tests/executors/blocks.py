"""Run single blocks of code, and a function that blocks import."""

from __future__ import annotations

from cellblock import CodeBlock, CodeExecutor, CodeResult, with_requirements


@with_requirements(global_imports=["math"])
def area(radius: float) -> int:
    """Return the area of a circle, rounded."""
    return round(math.pi * radius**2)  # type: ignore[name-defined]  # noqa: F821


async def run(executor: CodeExecutor, code: str, language: str = "python") -> CodeResult:
    """Run one block, and return its result."""
    return await executor.execute_code_blocks([CodeBlock(code, language)])
