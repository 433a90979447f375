"""Blocks in a container cannot break devices, or change startup files of the caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.sync import DockerCommandLineCodeExecutor
from tests.sandbox.test_startup_files import git, run

pytestmark = [pytest.mark.slow, pytest.mark.depends_on_user, pytest.mark.engine]


def test_root_cannot_replace_devices(image: str, tmp_path: Path) -> None:
    with DockerCommandLineCodeExecutor(image, work_dir=tmp_path, user="0:0") as executor:
        code = "rm /dev/null; echo x > /dev/null && cat /dev/null && echo x > /dev/shm/x"
        result = executor.execute_code_blocks([CodeBlock(code, "sh")])
        assert (result.exit_code, result.stdout) == (0, "")
        assert "Read-only file system" in result.stderr


def test_startup_files_are_protected_in_a_container(image: str, tmp_path: Path) -> None:
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
