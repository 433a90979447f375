"""A limit that is not named keeps the executor's default; None removes one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    DockerCommandLineCodeExecutor,
    DockerJupyterServer,
    JupyterCodeExecutor,
    Limits,
    LocalCommandLineCodeExecutor,
    LocalJupyterServer,
    Sandbox,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    sync,
)
from cellblock.limits import BOX_LIMITS, LOCAL_LIMITS, SANDBOX_LIMITS

# Forks until it may not, at most 700 times, and prints how often it could.
FORK_700 = """
import os, signal
children = []
try:
    while len(children) < 700:
        if (child := os.fork()) == 0:
            signal.pause()
        children.append(child)
except OSError:
    pass
print(len(children) == 700)
"""


def _box_session(**options: Any) -> CodeExecutor:
    return Sandbox(**options).session


WITH_LIMITS: dict[str, tuple[Callable[..., Any], Limits]] = {
    "sandbox": (SandboxCommandLineCodeExecutor, SANDBOX_LIMITS),
    "session": (SandboxSessionCodeExecutor, SANDBOX_LIMITS),
    "box": (_box_session, BOX_LIMITS),
    "docker": (DockerCommandLineCodeExecutor, SANDBOX_LIMITS),
    "local": (LocalCommandLineCodeExecutor, LOCAL_LIMITS),
    "jupyter": (JupyterCodeExecutor, LOCAL_LIMITS),
    "jupyter container": (DockerJupyterServer, DockerJupyterServer().limits),
}

pytestmark = [
    pytest.mark.depends_on_user,
    pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor"),
]


@pytest.mark.parametrize(
    ("limits", "can_fork_700"),
    [
        (Limits(cpu_seconds=10), False),
        (Limits(cpu_seconds=10, processes=None), True),
        (Limits.unlimited(), True),
    ],
)
def test_a_block_keeps_the_process_limit_unless_it_is_removed(
    limits: Limits, can_fork_700: bool
) -> None:
    with sync.SandboxCommandLineCodeExecutor(limits=limits) as executor:
        result = executor.execute_code_blocks([CodeBlock(FORK_700, "python")])
    assert (result.output, result.exit_code) == (f"{can_fork_700}\n", 0)


@pytest.mark.parametrize("kind", WITH_LIMITS)
def test_a_limit_that_is_not_named_keeps_its_default(kind: str) -> None:
    make, default = WITH_LIMITS[kind]
    limits = make(limits=Limits(open_files=99, output_bytes=None)).limits
    assert limits == dataclasses.replace(default, open_files=99, output_bytes=None)
    assert make(limits=Limits()).limits == default
    assert set(make(limits=Limits.unlimited()).limits.to_dict().values()) == {None}


def test_servers_keep_defaults_too() -> None:
    server = SandboxSessionServer(limits=Limits(open_files=99))
    session = SandboxSessionCodeExecutor(server=server)
    assert session.limits == dataclasses.replace(SANDBOX_LIMITS, open_files=99)
    LocalJupyterServer(limits=Limits(open_files=99))


def test_a_configuration_that_names_one_limit_keeps_the_others() -> None:
    saved = SandboxCommandLineCodeExecutor().dump_component().to_dict()
    saved["config"]["limits"] = {"cpu_seconds": 10, "tmp_bytes": None}
    loaded = CodeExecutor.load_component(json.loads(json.dumps(saved)))
    assert isinstance(loaded, SandboxCommandLineCodeExecutor)
    assert loaded.limits == dataclasses.replace(SANDBOX_LIMITS, cpu_seconds=10, tmp_bytes=None)
    again = CodeExecutor.load_component(loaded.dump_component())
    assert isinstance(again, SandboxCommandLineCodeExecutor)
    assert again.limits == loaded.limits
