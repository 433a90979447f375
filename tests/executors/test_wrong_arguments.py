"""A wrong argument is refused with a sentence that says what is expected."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    JupyterCodeExecutor,
    Limits,
    LocalCommandLineCodeExecutor,
    Policy,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    WorkspaceError,
    extract_code_blocks,
    sync,
)

KINDS: dict[str, Callable[..., Any]] = {
    "sandbox": SandboxCommandLineCodeExecutor,
    "session": SandboxSessionCodeExecutor,
    "local": LocalCommandLineCodeExecutor,
    "jupyter": JupyterCodeExecutor,
}
# The kinds, marked by what starting one needs.
STARTED = [
    pytest.param(kind, marks=pytest.mark.kernel if kind == "jupyter" else ()) for kind in KINDS
]
BLOCK = CodeBlock("print(1)", "python")
# Arguments, and what the message of the `ValueError` says.
OF_ALL: list[tuple[dict[str, Any], str]] = [
    ({"timeout": "5"}, "a number of seconds, such as 60, or None for no limit, not '5'"),
    ({"timeout": True}, "a number of seconds"),
    ({"timeout": 10**400}, "a number of seconds"),
    ({"timeout": float("inf")}, "None for no limit, not inf"),
    ({"timeout": float("nan")}, "greater than or equal to 1"),
    ({"timeout": 0.5}, "greater than or equal to 1"),
    ({"limits": None}, "limits must be a Limits object, such as Limits(cpu_seconds=10)"),
    ({"limits": {"processes": 5}}, "limits must be a Limits object"),
    ({"functions": print}, "functions must be a list of functions, such as [add]"),
    ({"work_dir": 7}, "work_dir must be a path, such as 'coding', not 7"),
]
OF_SANDBOX: list[tuple[dict[str, Any], str]] = [
    ({"policy": {"network": "none"}}, 'policy must be a Policy object, such as Policy(network="h'),
]

pytestmark = pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("options", "words"), OF_ALL, ids=lambda value: str(value)[:30])
def test_executors_refuse_wrong_arguments(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        KINDS[kind](**options)


@pytest.mark.parametrize("kind", ["sandbox", "session"])
@pytest.mark.parametrize(("options", "words"), OF_SANDBOX, ids=lambda value: str(value)[:30])
def test_sandboxes_refuse_wrong_arguments(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        KINDS[kind](**options)
    with pytest.raises(ValueError, match=re.escape(words)):
        SandboxSessionServer(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"read_only": "/etc"}, 'Policy.read_only must be a list of paths or mounts, such as ["/d'),
        ({"read_write": Path("/etc")}, "Policy.read_write must be a list of paths"),
        ({"read_only": [1]}, "An item of Policy.read_only must be a path or a Mount"),
        ({"environment": ["A=1"]}, 'Policy.environment must be a mapping, such as {"TZ": "UTC"}'),
    ],
)
def test_policies_refuse_wrong_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Policy(**options)


@pytest.mark.parametrize("message", [None, b"text", 5])
def test_a_message_that_is_no_text_is_refused(message: Any) -> None:
    with pytest.raises(ValueError, match="Pass the message as a text, such as"):
        extract_code_blocks(message)


@pytest.mark.parametrize("token", ["x", object(), True])
def test_a_token_that_is_none_is_refused(token: Any) -> None:
    words = r"cancellation_token must be a CancellationToken\(\) or None, not"
    executor = SandboxCommandLineCodeExecutor()
    with pytest.raises(ValueError, match=words):
        asyncio.run(executor.execute_code_blocks([BLOCK], token))
    with pytest.raises(ValueError, match=words):
        executor.execute_stream([BLOCK], token)


def test_a_checkpoint_that_is_none_is_refused() -> None:
    wrong: Any = 1
    words = r"Pass a Checkpoint .*\[-1\], not 1"
    with sync.SandboxSessionCodeExecutor() as session:
        with pytest.raises(ValueError, match=words):
            session.restore(wrong)
        with pytest.raises(ValueError, match=words):
            session.drop(wrong)
        with pytest.raises(ValueError, match=words):
            session.fork(checkpoint=wrong)


# work folders


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cannot_be_the_work_folder(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.touch()
    with pytest.raises(WorkspaceError, match=r"work_dir '.*file.txt' cannot be used: it is a file"):
        KINDS[kind](work_dir=file)
    with pytest.raises(WorkspaceError, match=r"cannot be used: Not a directory"):
        KINDS[kind](work_dir=str(file / "below"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_home_is_expanded(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert KINDS[kind](work_dir="~/zz").work_dir == tmp_path / "zz"
    assert os.listdir(tmp_path) == ["zz"]
    with pytest.raises(ValueError, match="work_dir cannot be '~nobody-has-this-name"):
        KINDS[kind](work_dir="~nobody-has-this-name/x")


# no time limit


@pytest.mark.parametrize("kind", STARTED)
def test_none_is_no_time_limit(kind: str, tmp_path: Path) -> None:
    async def main() -> list[tuple[int, str]]:
        executor: Any = KINDS[kind](timeout=None, work_dir=tmp_path)
        assert executor.timeout is None
        saved = executor.dump_component()
        async with CodeExecutor.load_component(saved) as loaded:
            blocks = [BLOCK, CodeBlock("echo 2", "sh")]
            results = [await loaded.execute_code_blocks([block]) for block in blocks]
        return [(result.exit_code, result.output) for result in results]

    assert asyncio.run(main()) == [(0, "1\n"), (0, "2\n")]


@pytest.mark.parametrize("kind", STARTED)
def test_a_very_long_time_limit_is_possible(kind: str, tmp_path: Path) -> None:
    async def main() -> str:
        async with KINDS[kind](timeout=1e9, work_dir=tmp_path) as executor:
            return str((await executor.execute_code_blocks([BLOCK])).output)

    assert asyncio.run(main()) == "1\n"


@pytest.mark.parametrize("kind", STARTED)
def test_a_limit_of_time_holds_without_a_timeout(kind: str, tmp_path: Path) -> None:
    async def main() -> int:
        limits = Limits(wall_seconds=0.5)
        async with KINDS[kind](timeout=None, work_dir=tmp_path, limits=limits) as executor:
            block = CodeBlock("import time; time.sleep(60)", "python")
            return int((await executor.execute_code_blocks([block])).exit_code)

    assert asyncio.run(main()) == 124
