"""The functions of `code_utils`: extract, infer, and run code in one call."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat.code_utils import (
    UNKNOWN,
    content_str,
    decide_use_docker,
    execute_code,
    extract_code,
    infer_lang,
)

FENCE = "```"


def fenced(tag: str, code: str) -> str:
    return f"{FENCE}{tag}\n{code}\n{FENCE}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"a\n{fenced('python', 'x = 1')}\nb", [("python", "x = 1")]),
        (f"{fenced('py', 'a')}\n{fenced('', 'ls')}", [("py", "a"), ("", "ls")]),
        (f"{FENCE} sh \r\nls\r\n{FENCE}", [("sh", "ls")]),
        (f"  {FENCE}python\n  x\n  {FENCE}", [("python", "  x")]),
        ("no code", [(UNKNOWN, "no code")]),
        (None, [(UNKNOWN, "")]),
        ([{"type": "text", "text": fenced("sh", "ls")}], [("sh", "ls")]),
        (f"{FENCE}python\nnot closed", [(UNKNOWN, f"{FENCE}python\nnot closed")]),
    ],
)
def test_extract_code_finds_fenced_blocks(text: Any, found: list[tuple[str, str]]) -> None:
    assert extract_code(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("use `x = 1` and `y`", [("", "x = 1"), ("", "y")]),
        (f"`a` and\n{fenced('python', '  x')}", [("", "a"), ("python", "x")]),
        (f"{FENCE}x = 1{FENCE}", [("", "x = 1")]),
        ("no code", []),
    ],
)
def test_extract_code_finds_code_in_single_backticks(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert extract_code(text, detect_single_line_code=True) == found


def test_extract_code_uses_the_pattern_of_the_caller() -> None:
    assert extract_code("<c>x</c>", pattern="<(c)>(.*?)</c>") == [("c", "x")]


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("print(1)", "python"),
        ("pip install x", "sh"),
        ("python3 x.py", "sh"),
        ("for i in x", UNKNOWN),
        ("", "python"),
    ],
)
def test_infer_lang(code: str, language: str) -> None:
    assert infer_lang(code) == language


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}], "a<image>"),
        ([], ""),
    ],
)
def test_content_str(content: Any, text: str) -> None:
    assert content_str(content) == text


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (5, TypeError, "content must be None, str, or list, but got <class 'int'>"),
        (["a"], TypeError, "every element should be dict"),
        ([{"type": "x"}], ValueError, "unknown type x within the content"),
        ([{"text": "a"}], AssertionError, "Missing 'type' key"),
    ],
)
def test_content_str_refuses_malformed_content(
    content: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        content_str(content)


@pytest.mark.parametrize(
    ("value", "decision"),
    [("1", True), ("Yes", True), ("t", True), ("0", False), ("No", False), ("None", None)],
)
def test_the_environment_decides_about_docker(
    value: str, decision: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEN_USE_DOCKER", value)
    assert decide_use_docker(None) is decision
    assert decide_use_docker("my-image") == "my-image"


def test_docker_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOGEN_USE_DOCKER", raising=False)
    assert decide_use_docker(None) is True


def test_a_wrong_value_in_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEN_USE_DOCKER", "perhaps")
    with pytest.raises(ValueError, match="Invalid value for AUTOGEN_USE_DOCKER: perhaps"):
        decide_use_docker(None)


def run(code: str | None = None, **options: Any) -> tuple[int, str, str | None]:
    return execute_code(code, use_docker=False, **options)


@pytest.mark.parametrize("sandbox", [True, False])
def test_execute_code_runs_named_files(sandbox: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"work_dir": str(tmp_path), "sandbox": sandbox}
    assert run("print('hi')", filename="sub/a.py", **options) == (0, "hi\n", None)
    assert (tmp_path / "sub" / "a.py").exists()
    assert run(filename="sub/a.py", **options) == (0, "hi\n", None)
    assert run(filename=str(tmp_path / "sub" / "a.py"), **options) == (0, "hi\n", None)
    exit_code, logs, _ = run(filename="missing.py", **options)
    assert exit_code == 2
    assert "missing.py" in logs
    assert run("print(1)", filename="../a.py", **options)[0] == 1
    assert not (tmp_path.parent / "a.py").exists()


@pytest.mark.parametrize("sandbox", [True, False])
def test_execute_code_shows_errors_without_the_path_of_the_file(
    sandbox: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"work_dir": str(tmp_path), "sandbox": sandbox}
    exit_code, logs, _ = run("print('out')\nprint(1/0)", **options)
    assert exit_code == 1
    assert logs.startswith('Traceback (most recent call last):\n  File "", line 2, in <module>')
    assert logs.endswith("ZeroDivisionError: division by zero\n")
    assert os.listdir(tmp_path) == []
    assert 'File "a/b.py", line' in run("print(1/0)", filename="a/b.py", **options)[1]


def test_execute_code_shows_standard_output_after_a_success() -> None:
    assert run("echo out; echo err >&2", lang="sh") == (0, "out\n", None)


def test_execute_code_shows_the_output_of_a_failure_without_error_text() -> None:
    assert run("echo out; exit 3", lang="sh") == (3, "out\n", None)


def test_execute_code_kills_code_at_its_time_limit(tmp_path: Path) -> None:
    code = "import fcntl, signal\nfile = open('held', 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
    assert run(f"{code}signal.pause()", timeout=1, work_dir=str(tmp_path)) == (1, "Timeout", None)
    with (tmp_path / "held").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for the end of the process


def test_execute_code_needs_code_or_a_file() -> None:
    with pytest.raises(AssertionError, match="Either code=None or filename=None must be provided."):
        run()


def test_execute_code_refuses_an_unknown_language() -> None:
    with pytest.raises(NotImplementedError, match="ruby not recognized in code execution"):
        run("puts 1", lang="ruby")


def test_code_in_the_sandbox_does_not_see_the_files_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    code = f"import os; print(os.path.exists({str(tmp_path / 'secret')!r}))"
    assert run(code)[1] == "False\n"
    assert run(code, sandbox=False)[1] == "True\n"


def test_code_in_the_sandbox_sees_where_the_package_index_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("MY_KEY", "k")
    code = "import os; print(os.environ.get('PIP_INDEX_URL'), os.environ.get('MY_KEY'))"
    assert run(code)[1] == "http://127.0.0.1:1/simple None\n"
