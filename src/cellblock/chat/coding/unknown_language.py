"""What AutoGen 0.2's executors say about a block in an unknown language."""

from __future__ import annotations

from ...results import CommandLineCodeResult


def with_message(result: CommandLineCodeResult, message: str) -> CommandLineCodeResult:
    """Return `result` with `message` if it ended at an unknown language.

    `{language}` in the message stands for the language.
    """
    last = result.blocks[-1] if result.blocks else None
    if last is None or last.code_file is not None:
        return result
    ours = f"unknown language {last.language}"
    if last.output == ours:
        result.output = result.output.removesuffix(ours) + message.format(language=last.language)
    return result
