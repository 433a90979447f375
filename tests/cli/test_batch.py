"""`cellblock batch` as a process."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.batch import Program, Verdict
from tests.batch.runs import noting, ran, waiting
from tests.cli.cli_process import notes, run_command
from tests.command_server import CommandProcess
from tests.executors.session.live_session import skip_without_sandbox
from tests.suite.tiers import exhaustive


def write_programs(*programs: Program) -> None:
    Path("programs.jsonl").write_text("".join(f"{each.to_json()}\n" for each in programs))


def arguments(*options: str) -> list[str]:
    return ["batch", "programs.jsonl", "-o", "verdicts.jsonl", *options]


def verdicts() -> list[Verdict]:
    return [Verdict.from_json(line) for line in Path("verdicts.jsonl").read_text().splitlines()]


def start(*options: str) -> CommandProcess[bytes]:
    """Start the command with the local executor, whose programs see the folder."""
    pipe = subprocess.PIPE
    return CommandProcess(
        arguments("--executor", "local", *options), stdout=pipe, stderr=pipe, stdin=pipe
    )


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.01)


def is_locked(file: Path) -> bool:
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def lines_written() -> int:
    file = Path("verdicts.jsonl")
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_verdicts_summary_and_exit_code() -> None:
    skip_without_sandbox()
    write_programs(
        Program(id="a", code="print(6 * 7)"),
        Program(id="b", code="import sys; sys.exit(3)"),
        Program(id="c", code="while True: pass"),
    )
    done = run_command(*arguments("--cpu-seconds", "0.2"))
    assert [(each.id, each.outcome, each.exit_code) for each in verdicts()] == [
        ("a", "passed", 0),
        ("b", "failed", 3),
        ("c", "timeout", 124),
    ]
    assert (done.returncode, done.stdout) == (1, "")
    assert notes(done.stderr) == ["3 programs: 1 passed, 1 failed, 1 timeout"]
    write_programs(Program(id="a", code="print(6 * 7)"))
    Path("verdicts.jsonl").unlink()
    for note in "", "; 1 of them in an earlier run":
        done = run_command(*arguments("--cpu-seconds", "0.2"))
        assert (done.returncode, notes(done.stderr)) == (0, [f"1 program: 1 passed{note}"])


def test_batch_that_is_killed_continues(cwd: Path) -> None:
    programs = [noting(str(number), cwd) for number in range(60)]
    go = waiting("waits", cwd / "go")
    write_programs(*programs[:30], go, *programs[30:])
    with start("--concurrency", "2") as killed:
        wait_until(lambda: lines_written() >= 45)
        killed.kill()
        killed.communicate()
    known = {each.id for each in verdicts_of_complete_lines()}
    assert 45 <= len(known) <= 60
    before = ran(cwd)
    (cwd / "go").touch()
    with start() as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    again = ran(cwd)[len(before) :]
    assert known.isdisjoint(again)
    # In the order of the programs, and each once.
    ids = [*(each.id for each in programs[:30]), "waits", *(each.id for each in programs[30:])]
    assert [each.id for each in verdicts()] == ids
    # Only what had no line can have run twice.
    twice = {name for name in ran(cwd) if ran(cwd).count(name) > 1}
    assert twice.isdisjoint(known)
    assert f"61 programs: 61 passed; {len(known)} of them in an earlier run" in err.decode()


def verdicts_of_complete_lines() -> list[Verdict]:
    lines = Path("verdicts.jsonl").read_text().splitlines(keepends=True)
    return [Verdict.from_json(line) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("number", exhaustive([signal.SIGINT, signal.SIGTERM]))
def test_signal_stops_the_batch(cwd: Path, temporary: Path, number: signal.Signals) -> None:
    held = cwd / "held"
    hold = f"import fcntl, time; file = open({str(held)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX)"
    holds = Program(id="holds", code=f"{hold}; time.sleep(600)")
    write_programs(noting("a", cwd), holds, *(noting(name, cwd) for name in "bc"))
    with start("--concurrency", "2") as process:
        wait_until(lambda: lines_written() == 3 and held.exists() and is_locked(held))
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 128 + number
    text = err.decode()
    assert notes(text) == ["stopped: 3 programs: 3 passed; the same command continues"]
    assert sorted(each.id for each in verdicts()) == ["a", "b", "c"]
    assert not is_locked(held)  # nothing of the batch is left
    assert list(temporary.iterdir()) == []


def test_two_batches_do_not_write_to_one_file(cwd: Path) -> None:
    write_programs(waiting("a", cwd / "go"))
    output = cwd / "verdicts.jsonl"
    with start() as first:
        wait_until(lambda: output.exists() and is_locked(output))
        done = run_command(*arguments())
        assert (done.returncode, "Another process writes to" in done.stderr) == (3, True)
        (cwd / "go").touch()
        first.communicate()
    assert first.returncode == 0


def test_bad_line_is_named_before_anything_runs() -> None:
    bad_lines = {
        b'{"id": "a", "code": ""}\n\n{"id": "b"}\n': "line 3 of programs.jsonl: The program 'b'",
        b'{"id": "a", "code": ""}\n' * 2: "line 2 of programs.jsonl: Programs 1 and 2 have",
        b'{"id": "a", "code": "", "test": ""}': "line 1 of programs.jsonl: The program has unknown",
        b"\xff": "programs.jsonl is not UTF-8",
    }
    assert refused({"": "programs.jsonl cannot be read: No such file"}) == []
    for text, message in bad_lines.items():
        Path("programs.jsonl").write_bytes(text)
        assert refused({"": message}) == [], text
        assert not Path("verdicts.jsonl").exists()


def refused(messages: dict[str, str]) -> list[object]:
    """Return for which options there is no usage error with the message."""
    done = {options: run_command(*arguments(*options.split())) for options in messages}
    return [
        (options, found)
        for options, found in done.items()
        if found.returncode != 2 or messages[options] not in found.stderr
    ]


def test_program_that_changed_since_its_verdict_is_refused(cwd: Path) -> None:
    write_programs(noting("a", cwd))
    with start() as process:
        process.communicate()
    write_programs(noting("0", cwd), Program(id="a", code="print(2)"))
    with start() as process:
        _, err = process.communicate()
    assert process.returncode == 3
    assert b"verdict on 'a', but the program, its tests or the limits have changed" in err


def test_programs_come_from_standard_input(cwd: Path) -> None:
    write_programs(*(noting(name, cwd) for name in "ab"))
    given = Path("programs.jsonl").read_text()
    command = ["batch", "-", "-o", "out", "--executor", "local"]
    done = run_command(*command, given=given)
    assert done.returncode == 0
    done = run_command(*command, given=f"{given}no\n")
    assert done.returncode == 2
    assert "line 3 of standard input: The line is not JSON" in done.stderr
    assert [json.loads(line)["id"] for line in Path("out").read_text().splitlines()] == ["a", "b"]


def test_samples_of_a_data_set_are_judged() -> None:
    skip_without_sandbox()
    problem = {
        "task_id": "Test/0",
        "prompt": 'def twice(n):\n    """Return 2 n."""\n',
        "canonical_solution": "    return 2 * n\n",
        "test": "def check(candidate):\n    assert candidate(4) == 8\n",
        "entry_point": "twice",
    }
    Path("problems.jsonl").write_text(json.dumps(problem))
    command = ["batch", "problems.jsonl", "--format", "humaneval"]
    assert run_command(*command, "-o", "own").returncode == 0
    command += ["--samples", "samples.jsonl", "-o", "verdicts.jsonl"]
    answers = [{"task_id": "Test/0", "completion": f"    return {n} * n\n"} for n in (2, 3)]
    Path("samples.jsonl").write_text("\n".join(map(json.dumps, answers)))
    assert run_command(*command).returncode == 1
    outcomes = {each.id: each.outcome for each in verdicts()}
    assert outcomes == {"Test/0#0": "passed", "Test/0#1": "failed"}
    Path("samples.jsonl").write_text('{"task_id": "Test/1"}')
    done = run_command(*command)
    assert (done.returncode, "line 1: the task 'Test/1' is not among" in done.stderr) == (2, True)


def test_wrong_option_is_refused() -> None:
    messages = {
        "--samples x": "--samples applies only to --format humaneval and mbpp",
        "--image x": "--image applies only to --executor docker",
        "--executor local --network": "--network does not apply to --executor local",
        "--cpu-seconds 0": "--cpu-seconds",
        "--memory 1M": "too small to start Python",
    }
    assert refused(messages) == []
