"""A block that takes away the rights to its work folder does not stop the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor

pytestmark = pytest.mark.depends_on_user


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
@pytest.mark.parametrize("is_given", [True, False])
def test_rights_to_the_work_folder_come_back(
    kind: type[SandboxCommandLineCodeExecutor], is_given: bool, tmp_path: Path
) -> None:
    tmp_path.chmod(0o750)
    with kind(work_dir=tmp_path if is_given else None) as executor:

        def run(code: str, language: str = "python") -> str:
            return executor.execute_code_blocks([CodeBlock(code, language)]).check().output

        run("import os\nopen('kept', 'w').close()\nos.chmod('.', 0)")
        assert "kept" in run("ls", "sh")
        run("import os\nos.chmod('.', 0)")
        assert "kept" in run("import os\nprint(os.listdir())")
    assert not is_given or tmp_path.stat().st_mode & 0o700 == 0o700
