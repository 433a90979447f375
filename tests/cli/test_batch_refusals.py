"""`cellblock batch` refuses what would lose or mix verdicts, before any program runs."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from cellblock import sync
from cellblock.batch import Journal, JournalError, Program, Verdict
from cellblock.cli import main


def run_batch(capsys: pytest.CaptureFixture[str], file: str = "programs") -> tuple[object, str]:
    """Run the command. Return its exit code, and what it wrote to standard error."""
    with pytest.raises(SystemExit) as ended:
        main(["batch", file, "-o", "verdicts", "--executor", "local"])
    return ended.value.code, capsys.readouterr().err


def write_programs(*names: str, language: str = "python") -> None:
    programs = [Program(id=name, code="print(1)", language=language) for name in names]
    Path("programs").write_text("".join(f"{each.to_json()}\n" for each in programs))


def write_verdicts(*names: str) -> None:
    text = "".join(f"{Verdict(id=name, outcome='passed').to_json()}\n" for name in names)
    Path("verdicts").write_text(text)


@pytest.mark.parametrize("file", ["programs", "-"])
def test_a_file_without_programs_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    Path("programs").write_text("\n")
    code, text = run_batch(capsys, file)
    assert (code, "has no programs" in text) == (2, True), text


def test_the_verdicts_of_another_batch_are_not_mixed_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_programs("a", "b")
    write_verdicts("a", "other", "more")
    before = Path("verdicts").read_bytes()
    code, text = run_batch(capsys)
    assert code == 3
    assert "verdicts has 2 verdicts on programs of another batch, such as '" in text
    assert Path("verdicts").read_bytes() == before


def test_two_verdicts_of_one_program_are_refused() -> None:
    write_verdicts("a", "b", "a")
    with pytest.raises(JournalError, match="Line 3 of verdicts is the second verdict on 'a'"):
        Journal("verdicts")


def test_an_unknown_language_is_no_error_of_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_programs("a", language="klingon")
    code, text = run_batch(capsys)
    assert code == 2
    assert "line 1 of programs: The program 'a': The language 'klingon' is unknown." in text
    with pytest.raises(ValueError, match="The language 'klingon' is unknown"):
        list(sync.run_many([Program(id="a", code="", language="klingon")]))


def test_a_data_set_in_a_compressed_file_names_the_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = {"task_id": "HumanEval/0", "prompt": "", "canonical_solution": ""}
    cases = {
        "problems.jsonl.gz": (
            gzip.compress(json.dumps(problem).encode()),
            "add --format humaneval;",
        ),
        "other.gz": (b"no archive", "cannot be read: Not a gzipped file"),
        "cut.gz": (gzip.compress(json.dumps(problem).encode())[:20], "cannot be read: "),
    }
    for name, (content, expected) in cases.items():
        Path(name).write_bytes(content)
        code, text = run_batch(capsys, name)
        assert (code, expected in text) == (2, True), text


def test_sorting_touches_no_other_file(cwd: Path) -> None:
    (cwd / "mine").write_text("kept")
    (cwd / "verdicts.sorted").symlink_to("mine")
    with Journal("verdicts") as journal:
        for name in "ba":
            journal.write(Verdict(id=name, outcome="passed"))
        for name in "ab":
            journal.find(name, "")
        journal.sort()
    lines = Path("verdicts").read_text().splitlines()
    assert [Verdict.from_json(line).id for line in lines] == ["a", "b"]
    assert (cwd / "mine").read_text() == "kept"
    assert sorted(path.name for path in cwd.iterdir()) == ["mine", "verdicts", "verdicts.sorted"]
