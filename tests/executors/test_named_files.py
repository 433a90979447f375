"""Blocks in ignored languages are saved only if they have a file name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, sync
from tests.executors.jupyter import kernels

pytestmark = pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
KINDS: dict[str, Callable[[Path], sync.SyncCodeExecutor]] = {
    "local": lambda folder: sync.LocalCommandLineCodeExecutor(work_dir=folder),
    "sandbox": lambda folder: sync.SandboxCommandLineCodeExecutor(work_dir=folder),
    "session": lambda folder: sync.SandboxSessionCodeExecutor(work_dir=folder),
    "jupyter": lambda folder: sync.JupyterCodeExecutor(work_dir=folder),
}
# The kinds, marked by what starting one needs.
STARTED = [
    pytest.param(kind, marks=pytest.mark.kernel if kind == "jupyter" else ()) for kind in KINDS
]
CONFIG = CodeBlock("# filename: made/config.yaml\nname: x\n", "yaml")
READ = CodeBlock("print(open('made/config.yaml').read())", "python")


@pytest.fixture(autouse=True, scope="module")
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        kernels.install_kernel_specs(patch, tmp_path_factory.mktemp("jupyter"))
        yield


@pytest.mark.parametrize("kind", STARTED)
def test_a_block_with_a_file_name_is_saved_for_the_next_block(kind: str, tmp_path: Path) -> None:
    with KINDS[kind](tmp_path) as executor:
        result = executor.execute_code_blocks([CONFIG, READ])
        saved, read = result.blocks
        assert (result.exit_code, saved.output) == (0, f"Code saved to {saved.code_file}\n")
        assert saved.code_file == str(tmp_path / "made/config.yaml")
        assert read.output == CONFIG.code + "\n"


@pytest.mark.parametrize("kind", STARTED)
def test_the_code_file_is_absolute_also_in_a_relative_work_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with KINDS[kind](Path("work")) as executor:
        code = "# filename: made/a.py\nopen('b.txt', 'w').close()"
        result = executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.blocks[0].code_file == str(tmp_path / "work" / "made" / "a.py")
        assert result.files == ["b.txt"]


@pytest.mark.parametrize("language", ["toml", "sql", "md", "xml", "diff"])
def test_a_file_name_saves_blocks_in_any_language(language: str, tmp_path: Path) -> None:
    with sync.LocalCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        executor.execute_code_blocks(
            [CodeBlock("// filename: one\ntext", language), CodeBlock("example", language)]
        )
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
            "one": "// filename: one\ntext"
        }


@pytest.mark.parametrize("language", ["json", "csv", "text", "output", "console"])
def test_the_name_line_is_removed_in_languages_without_comments(
    language: str, tmp_path: Path
) -> None:
    with sync.LocalCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        executor.execute_code_blocks([CodeBlock('// filename: one\n{"a": 1}\n', language)])
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one": '{"a": 1}\n'}


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
