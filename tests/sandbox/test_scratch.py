"""A work folder that contains the folder for temporary files shows nothing of ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.sync import (
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SyncCodeExecutor,
)
from tests.suite.tiers import exhaustive

LIST = "import os; print(sorted(name for _, names, _ in os.walk('.') for name in names))"
KINDS: list[Callable[..., SyncCodeExecutor]] = [
    SandboxCommandLineCodeExecutor,
    partial(SandboxCommandLineCodeExecutor, isolation="landlock"),
    SandboxSessionCodeExecutor,
]


@pytest.fixture(params=exhaustive(["the temporary folder", "a folder that contains it"]))
def work_dir(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary if request.param == "the temporary folder" else tmp_path


@pytest.mark.parametrize("kind", KINDS, ids=["sandbox", "landlock", "session"])
def test_blocks_see_no_scratch_folder(
    kind: Callable[..., SyncCodeExecutor], work_dir: Path
) -> None:
    before = sorted(path.name for path in work_dir.rglob("*"))
    with kind(work_dir=work_dir) as executor:
        assert executor.execute_code_blocks([CodeBlock(LIST, "python")]).output == f"{before}\n"
