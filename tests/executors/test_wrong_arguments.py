"""A wrong argument is refused with a sentence that says what is expected."""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

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
SANDBOXES = [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor]
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
OF_POLICY: list[tuple[dict[str, Any], str]] = [
    ({"read_only": "/etc"}, 'Policy.read_only must be a list of paths or mounts, such as ["/d'),
    ({"read_write": Path("/etc")}, "Policy.read_write must be a list of paths"),
    ({"read_only": [1]}, "An item of Policy.read_only must be a path or a Mount"),
    ({"environment": ["A=1"]}, 'Policy.environment must be a mapping, such as {"TZ": "UTC"}'),
]

pytestmark = pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")


def refusal(make: Callable[..., object], **options: Any) -> str:
    """Return what the `ValueError` or `WorkspaceError` of a call says."""
    try:
        make(**options)
    except (ValueError, WorkspaceError) as error:
        return str(error)
    return "nothing was raised"


def test_executors_and_policies_refuse_wrong_arguments() -> None:
    of_sandbox = {"policy": {"network": "none"}}, "policy must be a Policy object, such as Policy(n"
    cases = [(make, *case) for make in KINDS.values() for case in OF_ALL]
    cases += [(make, *of_sandbox) for make in (*SANDBOXES, SandboxSessionServer)]
    cases += [(Policy, *case) for case in OF_POLICY]
    faults = [
        (make, options, said)
        for make, options, words in cases
        if words not in (said := refusal(make, **options))
    ]
    assert faults == []


def test_what_is_no_message_and_no_token_is_refused() -> None:
    executor = SandboxCommandLineCodeExecutor()
    calls: list[tuple[Callable[[], object], str]] = [
        (functools.partial(extract_code_blocks, wrong), "Pass the message as a text, such as")
        for wrong in cast(list[Any], [None, b"text", 5])
    ]
    words = "cancellation_token must be a CancellationToken() or None, not"
    for wrong in cast(list[Any], ["x", object(), True]):
        calls += [
            (functools.partial(executor.execute_stream, [BLOCK], wrong), words),
            (lambda token=wrong: asyncio.run(executor.execute_code_blocks([BLOCK], token)), words),
        ]
    faults = [(call, said) for call, words in calls if words not in (said := refusal(call))]
    assert faults == []


def test_a_checkpoint_that_is_none_is_refused() -> None:
    wrong: Any = 1
    with sync.SandboxSessionCodeExecutor() as session:
        said = [
            refusal(session.restore, checkpoint=wrong),
            refusal(session.drop, checkpoint=wrong),
            refusal(session.fork, checkpoint=wrong),
        ]
    assert [bool(re.match(r"Pass a Checkpoint .*\[-1\], not 1", each)) for each in said] == [
        True
    ] * 3


def test_a_file_cannot_be_the_work_folder(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.touch()
    said = {refusal(make, work_dir=file) for make in KINDS.values()}
    assert said == {f"work_dir '{file}' cannot be used: it is a file. Pass the path of a folder."}
    said = {refusal(make, work_dir=str(file / "below")) for make in KINDS.values()}
    assert all("cannot be used: Not a directory" in each for each in said), said


def test_the_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for kind, make in KINDS.items():
        assert make(work_dir=f"~/{kind}").work_dir == tmp_path / kind
        said = refusal(make, work_dir="~nobody-has-this-name/x")
        assert "work_dir cannot be '~nobody-has-this-name" in said
    assert sorted(os.listdir(tmp_path)) == sorted(KINDS)


@pytest.mark.parametrize(
    "kind",
    [
        "sandbox",
        "session",
        "local",
        pytest.param("jupyter", marks=[pytest.mark.kernel, pytest.mark.exhaustive]),
    ],
)
@pytest.mark.usefixtures("kept_servers")
async def test_a_time_limit_can_be_absent_or_very_long(kind: str, tmp_path: Path) -> None:
    unlimited: Any = KINDS[kind](timeout=None, work_dir=tmp_path)
    assert unlimited.timeout is None
    loaded = CodeExecutor.load_component(unlimited.dump_component())
    for executor in (loaded, KINDS[kind](timeout=1e9, work_dir=tmp_path)):
        async with executor:
            blocks = [BLOCK, CodeBlock("echo 2", "sh")]
            results = [await executor.execute_code_blocks([block]) for block in blocks]
        found = [(result.exit_code, result.output) for result in results]
        assert found == [(0, "1\n"), (0, "2\n")]
    limits = Limits(wall_seconds=0.5)
    async with KINDS[kind](timeout=None, work_dir=tmp_path, limits=limits) as executor:
        block = CodeBlock("import time; time.sleep(60)", "python")
        assert (await executor.execute_code_blocks([block])).exit_code == 124
