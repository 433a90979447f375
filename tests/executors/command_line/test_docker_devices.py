"""Root in a container cannot break the devices of later blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.sync import DockerCommandLineCodeExecutor
from tests.containers import docker_engine

pytestmark = [pytest.mark.engine]


def test_root_cannot_replace_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    with DockerCommandLineCodeExecutor(image, work_dir=tmp_path, user="0:0") as executor:
        code = "rm /dev/null; echo x > /dev/null && cat /dev/null && echo x > /dev/shm/x"
        result = executor.execute_code_blocks([CodeBlock(code, "sh")])
        assert (result.exit_code, result.stdout) == (0, "")
        assert "Read-only file system" in result.stderr
