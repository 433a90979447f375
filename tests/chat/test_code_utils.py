"""The functions of `code_utils`: extract, infer, and run code in one call."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat.code_utils import (
    decide_use_docker,
    execute_code,
)


def test_docker_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOGEN_USE_DOCKER", raising=False)
    assert decide_use_docker(None) is True
    assert decide_use_docker("my-image") == "my-image"


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


def test_execute_code_shows_the_output_of_a_failure_without_error_text() -> None:
    assert run("echo out; exit 3", lang="sh") == (3, "out\n", None)


def test_execute_code_kills_code_at_its_time_limit(tmp_path: Path) -> None:
    code = "import fcntl, signal\nfile = open('held', 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
    assert run(f"{code}signal.pause()", timeout=1, work_dir=str(tmp_path)) == (1, "Timeout", None)
    with (tmp_path / "held").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for the end of the process


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
