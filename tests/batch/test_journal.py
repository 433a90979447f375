"""The journal of a batch: what is kept, what is dropped, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.batch import Journal, JournalError, JudgeLimits, Program, Verdict
from tests.batch.runs import judge_all, noting, ran, sandbox_with

LIMITS = JudgeLimits()


def lines(path: Path) -> list[Verdict]:
    return [Verdict.from_json(line) for line in path.read_text().splitlines()]


def verdict(name: str, digest: str = "") -> Verdict:
    return Verdict(id=name, outcome="passed", digest=digest)


def written(path: Path, names: str) -> Path:
    """Write a verdict for each letter of `names` and return `path`."""
    with Journal(path) as journal:
        for name in names:
            journal.write(verdict(name))
    return path


def test_second_run_yields_the_verdicts_and_runs_only_the_rest(tmp_path: Path) -> None:
    path, executor = tmp_path / "verdicts", sandbox_with(tmp_path)
    programs = [noting(name, tmp_path) for name in "abcd"]
    first = judge_all(programs[1:3], executor=executor, journal=path)
    assert sorted(ran(tmp_path)) == ["b", "c"]
    second = judge_all(programs, executor=executor, journal=path)
    assert [each.id for each in second] == list("abcd")
    assert second[1:3] == first
    assert sorted(ran(tmp_path)) == ["a", "b", "c", "d"]
    assert sorted(each.id for each in lines(path)) == list("abcd")


def test_unfinished_last_line_is_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "verdicts", "ab")
    for cut in (1, 30):
        text = path.read_bytes()
        path.write_bytes(text[:-cut])
        Journal(path).close()
        assert path.read_bytes() == text.splitlines(keepends=True)[0]
        with Journal(path) as journal:
            assert journal.find("a", "") == verdict("a")
            assert journal.find("b", "") is None
            journal.write(verdict("b"))
        assert path.read_bytes() == text


@pytest.mark.parametrize("damage", ["{}", "print(1)", '{"id": "a", "outcome": "fine"}', "\udcff"])
def test_damaged_line_is_refused_and_the_file_is_left(tmp_path: Path, damage: str) -> None:
    path = written(tmp_path / "verdicts", "a")
    with path.open("ab") as file:
        file.write(damage.encode(errors="surrogateescape") + b"\n")
    text = path.read_bytes()
    with pytest.raises(JournalError, match="Line 2 of .*verdicts is no verdict"):
        Journal(path)
    assert path.read_bytes() == text


def test_program_that_has_changed_is_refused(tmp_path: Path) -> None:
    path, program = tmp_path / "verdicts", Program(id="a", code="1")
    judge_all([program], journal=path)
    for changed, limits in (
        (Program(id="a", code="2"), LIMITS),
        (program, JudgeLimits(cpu_seconds=3)),
    ):
        with pytest.raises(JournalError, match="verdict on 'a', but the program, its tests"):
            judge_all([changed], journal=path, limits=limits)
    assert len(judge_all([program], journal=path)) == 1


def test_program_without_a_verdict_is_judged_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "verdicts"
    with Journal(path) as journal:
        journal.write(Verdict(id="a", outcome="not_judged"))
    assert path.read_bytes() == b""


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "verdicts"
    code = f"""
from cellblock.batch import Journal
with Journal({str(path)!r}):
    print(1, flush=True)
    input()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(JournalError, match="Another process writes to .*verdicts"):
            Journal(path)
        other.communicate(b"\n")
    Journal(path).close()


def test_verdicts_are_sorted_like_the_programs(tmp_path: Path) -> None:
    path = written(tmp_path / "verdicts", "xcab")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    with Journal(link) as journal:
        for name in "abdc":
            journal.find(name, "")
        journal.write(verdict("d"))
        journal.sort()
    assert [each.id for each in lines(path)] == list("abdcx")
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) in (["verdicts", "link"], ["link", "verdicts"])


def test_every_text_survives_the_file(tmp_path: Path) -> None:
    path, strange = tmp_path / "verdicts", "é\u2028\n\r\x85\ud800\0"
    with Journal(path) as journal:
        journal.write(Verdict(id=strange, outcome="failed", output=strange))
    with Journal(path) as journal:
        found = journal.find(strange, "")
        assert found is not None
        assert found.output == strange


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="is not a regular file"):
        Journal(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        Journal(tmp_path)


def test_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    # Another process: the limit on the size of files would also hold in the others.
    code = f"""
import resource, signal
from cellblock.batch import Journal, Verdict
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal({str(tmp_path / "verdicts")!r})
journal.write(Verdict(id="a", outcome="passed"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    journal.write(Verdict(id="b", outcome="passed", output="x" * 2000))
except OSError as error:
    print(error.strerror)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert [each.id for each in lines(tmp_path / "verdicts")] == ["a"]
