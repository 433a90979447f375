"""Blocks in ignored languages are saved only if they have a file name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock import CodeBlock, sync

pytestmark = [
    pytest.mark.usefixtures("kernel_specs"),
    pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor"),
]
KINDS: dict[str, Callable[[Path], sync.SyncCodeExecutor]] = {
    "local": lambda folder: sync.LocalCommandLineCodeExecutor(work_dir=folder),
    "sandbox": lambda folder: sync.SandboxCommandLineCodeExecutor(work_dir=folder),
    "session": lambda folder: sync.SandboxSessionCodeExecutor(work_dir=folder),
    "jupyter": lambda folder: sync.JupyterCodeExecutor(work_dir=folder),
}
STARTED = ["local", "sandbox", "session", pytest.param("jupyter", marks=pytest.mark.kernel)]
WITHOUT_COMMENTS = ("json", "csv", "text", "output", "console")
CONFIG = CodeBlock("# filename: made/config.yaml\nname: x\n", "yaml")
READ = CodeBlock("print(open('made/config.yaml').read())", "python")


@pytest.mark.parametrize("kind", STARTED)
def test_a_block_with_a_file_name_is_saved_for_the_next_block_also_in_a_relative_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with KINDS[kind](Path("work")) as executor:
        result = executor.execute_code_blocks([CONFIG, READ])
        saved, read = result.blocks
        assert (result.exit_code, saved.output) == (0, f"Code saved to {saved.code_file}\n")
        assert saved.code_file == str(tmp_path / "work/made/config.yaml")
        assert read.output == CONFIG.code + "\n"
        code = "# filename: made/a.py\nopen('b.txt', 'w').close()"
        result = executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.blocks[0].code_file == str(tmp_path / "work/made/a.py")
        assert result.files == ["b.txt"]


def test_a_file_name_saves_blocks_in_any_language(tmp_path: Path) -> None:
    saved = dict[str, str]()
    with sync.LocalCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        for language in ("toml", "sql", "md", "xml", "diff", *WITHOUT_COMMENTS):
            code = f"// filename: {language}\ntext"
            executor.execute_code_blocks([CodeBlock(code, language), CodeBlock("it", language)])
            saved[language] = "text" if language in WITHOUT_COMMENTS else code
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == saved


def test_a_name_outside_the_work_folder_is_refused(tmp_path: Path) -> None:
    with sync.LocalCommandLineCodeExecutor(work_dir=tmp_path / "work") as executor:
        result = executor.execute_code_blocks([CodeBlock("# filename: ../one\ntext", "yaml")])
        assert (result.exit_code, result.output) == (1, "Filename is not in the workspace")
        assert not (tmp_path / "one").exists()


def test_an_explicit_ignore_policy_wins_over_a_file_name(tmp_path: Path) -> None:
    with sync.LocalCommandLineCodeExecutor(
        work_dir=tmp_path, execution_policies={"yml": "ignore"}
    ) as executor:
        result = executor.execute_code_blocks([CONFIG])
        assert (result.exit_code, result.output, list(tmp_path.iterdir())) == (0, "", [])
