"""Startup files in the work folder of a container: read-only, and new ones of Git are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.sync import DockerCommandLineCodeExecutor
from tests.containers import docker_engine
from tests.sandbox.test_startup_files import git, run

pytestmark = [pytest.mark.engine]


def test_startup_files_are_protected_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    git(tmp_path, "init", "-q")
    (tmp_path / ".envrc").write_text("")
    (tmp_path / "a:b.code-workspace").write_text("")
    with DockerCommandLineCodeExecutor(image, work_dir=tmp_path) as executor:
        for path in (".envrc", ".git/config", ".git/hooks/pre-commit", "a:b.code-workspace"):
            assert "Read-only" in run(executor, f"echo x >> {path}").stderr
        for path in (".git", ".envrc", ".git/hooks"):
            assert run(executor, f"mv {path} moved").exit_code != 0
        result = run(executor, "echo ../x > .git/commondir")
        assert ".git/commondir" in result.stderr
        assert not (tmp_path / ".git" / "commondir").exists()
        saved = executor.execute_code_blocks([CodeBlock("# filename: .envrc\nx", "sh")])
        assert "is read-only" in saved.output
    assert (tmp_path / ".envrc").read_text() == ""
