"""AutoGen 0.2's local executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cellblock.chat.coding import (
    CodeBlock,
    CommandLineCodeResult,
    LocalCommandLineCodeExecutor,
)


def run(folder: Path, *blocks: tuple[str, str], **options: Any) -> CommandLineCodeResult:
    executor = LocalCommandLineCodeExecutor(work_dir=folder, **options)
    try:
        return executor.execute_code_blocks(
            [CodeBlock(code=code, language=language) for language, code in blocks]
        )
    finally:
        executor.stop()


def test_policies_say_which_languages_run(tmp_path: Path) -> None:
    result = run(
        tmp_path, ("python", "print(1)"), ("sh", "echo 2"), execution_policies={"python": False}
    )
    assert result.output == f"Code saved to {result.code_file}\n2\n"


@pytest.mark.parametrize("first_line", ["# This is a comment", "// note", "#!/bin/sh"])
def test_a_first_comment_is_no_file_name(first_line: str, tmp_path: Path) -> None:
    run(tmp_path, ("css", f"{first_line}\nx"))
    assert [path.name.startswith("tmp_code_") for path in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize(
    ("language", "code", "words"),
    [
        ("sh", "rm -rf ./nothing-here", "Use of 'rm -rf' command"),
        ("bash", "mv nothing-here /dev/null", "Moving files to /dev/null"),
        ("shell", "dd --help", "Use of 'dd' command"),
        ("sh", "echo 'text > /dev/sdz'", "Overwriting disk blocks"),
        ("sh", "f() { f | f & }", "Fork bombs"),
    ],
)
def test_commands_that_often_do_harm_are_refused(
    language: str, code: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"Potentially dangerous command detected: {words}"):
        LocalCommandLineCodeExecutor.sanitize_command(language, code)
    result = run(tmp_path, ("sh", "touch ran"), (language, code))
    assert (result.exit_code, words in result.output) == (1, True)
    assert list(tmp_path.iterdir()) == [], "the chat goes on, and nothing has run"


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "x = 'rm -rf'"), ("sh", "git add dd"), ("sh", "ls --dd"), ("pwsh", "rm -rf a")],
)
def test_other_commands_are_not_refused(language: str, code: str) -> None:
    LocalCommandLineCodeExecutor.sanitize_command(language, code)


def test_no_blocks_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="block"):
        run(tmp_path)
