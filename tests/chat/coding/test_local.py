"""AutoGen 0.2's local executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cellblock.chat.coding import (
    CodeBlock,
    CodeExecutor,
    CommandLineCodeResult,
    LocalCommandLineCodeExecutor,
)
from cellblock.chat.coding.func_with_reqs import with_requirements


def run(folder: Path, *blocks: tuple[str, str], **options: Any) -> CommandLineCodeResult:
    executor = LocalCommandLineCodeExecutor(work_dir=folder, **options)
    try:
        return executor.execute_code_blocks(
            [CodeBlock(code=code, language=language) for language, code in blocks]
        )
    finally:
        executor.stop()


def test_it_is_an_executor_of_autogen(tmp_path: Path) -> None:
    executor = LocalCommandLineCodeExecutor(work_dir=str(tmp_path))
    assert isinstance(executor, CodeExecutor)
    assert (executor.timeout, executor.work_dir) == (60, tmp_path)
    assert executor.code_extractor.extract_code_blocks("```sh\nls\n```") == [
        CodeBlock(code="ls", language="sh")
    ]
    assert LocalCommandLineCodeExecutor().work_dir == Path(".")


def test_the_files_of_blocks_are_kept(tmp_path: Path) -> None:
    result = run(tmp_path, ("python", "print(1)"), ("sh", "echo 2"))
    assert (result.exit_code, result.output) == (0, "1\n2\n")
    assert result.code_file is not None
    assert Path(result.code_file).read_text() == "print(1)"


@pytest.mark.parametrize("language", ["javascript", "js", "html", "css"])
def test_pages_and_scripts_are_saved_and_not_run(language: str, tmp_path: Path) -> None:
    result = run(tmp_path, (language, "x"))
    assert result.exit_code == 0
    assert result.output == f"Code saved to {result.code_file}\n"
    assert result.code_file is not None
    assert Path(result.code_file).read_text() == "x"


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


def test_restart_warns_that_it_does_nothing() -> None:
    with pytest.warns(UserWarning, match="No action is taken."):
        LocalCommandLineCodeExecutor().restart()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "Timeout must be greater than or equal to 1."),
        ({"functions_module": "a b"}, "Module name must be a valid Python identifier"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LocalCommandLineCodeExecutor(**options)


def test_an_unknown_language_ends_the_blocks(tmp_path: Path) -> None:
    result = run(tmp_path, ("sh", "echo a"), ("zz", "x"), ("sh", "touch late"))
    assert (result.exit_code, result.output) == (1, "a\n\nunknown language zz")
    assert not (tmp_path / "late").exists()


def test_no_blocks_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="block"):
        run(tmp_path)


@with_requirements(python_packages=[], global_imports=[])
def add_two_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_blocks_import_functions(tmp_path: Path) -> None:
    code = "from functions import add_two_numbers\nprint(add_two_numbers(1, 2))"
    assert run(tmp_path, ("python", code), functions=[add_two_numbers]).output == "3\n"
    executor = LocalCommandLineCodeExecutor(work_dir=tmp_path, functions=[add_two_numbers])
    prompt = executor.format_functions_for_prompt()
    assert 'def add_two_numbers(a: int, b: int) -> int:\n    """Add two numbers."""' in prompt
