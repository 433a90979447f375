"""The command as its users meet it: in a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable
from tests.cli.cli_process import COMMAND, begin, local, notes, run

EXECUTORS = ["sandbox", "local"]
# Beats until it is killed; with children, so that more than one process has to end.
HEART = """
import os, time
print("begun", flush=True)
os.fork()
while True:
    with open("heart", "a") as file:
        file.write("x")
    time.sleep(0.01)
"""
WAITS = """
import os, time
print("first", flush=True)
open("there", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print("last")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be in a new folder, with another one for temporary files, and hear Ctrl-C even where the tests do not."""
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path / "here"
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> str:
    if request.param == "sandbox" and (reason := unavailable()):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def sandbox() -> None:
    if reason := unavailable():
        pytest.skip(reason)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def line_of(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def left_over(here: Path) -> list[str]:
    return sorted(path.name for path in (here.parent / "temporary").iterdir())


def stands_still(file: Path) -> bool:
    before = file.stat().st_size
    time.sleep(0.2)  # twenty beats
    return file.stat().st_size == before


# what is run


def test_a_message_runs_block_by_block(executor: str, here: Path) -> None:
    Path("message.md").write_text(
        "Do:\n```sh\necho one; printf two >&2; echo data > made.txt\n```\nThis is a table:\n```text\nno\n```\n"
        "```python\n# filename: second.py\nprint('three')\nraise SystemExit(7)\n```\n```python\nprint('never')\n```\n"
    )
    done = run("run", "--executor", executor, "message.md")
    assert (done.returncode, done.stdout) == (7, "one\nthree\n")
    assert notes(done.stderr) == [
        "not run: 1 x text",
        "block 1 of 3: sh",
        "made coding/made.txt (5 bytes)",
        "block 2 of 3: python (second.py)",
        "exit code 7",
    ]
    assert "two\n--- made" in done.stderr
    assert (here / "coding" / "made.txt").read_text() == "data\n"


def test_a_note_is_on_a_line_of_its_own_where_both_streams_meet() -> None:
    code = "import sys; print('half', end=''); sys.exit(3)"
    done = subprocess.run(
        [*COMMAND, "run", "--executor", "local", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
        check=False,
    )
    assert done.stdout.endswith(b"half\n--- exit code 3\n")


def test_standard_input_is_a_message() -> None:
    assert local("-", given=b"\xef\xbb\xbf```python\nprint('\xff')\n```").stdout == "\ufffd\n"
    assert local("-", "--language", "sh", given="echo a").stdout == "a\n"


def test_code_and_programs_are_one_block() -> None:
    Path("program.py").write_text("print('```')")
    Path("program.txt").write_text("echo b")
    assert local("program.py").stdout == "```\n"
    assert local("program.txt", "--language", "sh").stdout == "b\n"
    assert local("-c", "print('c')").stdout == "c\n"
    assert local("-c", "echo d", "--language", "bash").stdout == "d\n"


def test_an_unknown_language_in_a_message_is_a_result() -> None:
    done = local("-", given="```klingon\nQapla'\n```")
    assert (done.returncode, done.stdout) == (1, "")
    assert notes(done.stderr)[-1] == "unknown language klingon; exit code 1"


def test_blocks_of_a_session_share_their_variables(sandbox: None, here: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    message = "```python\nx = 41\n```\n```sh\necho here\n```\n```python\nfrom IPython.display import HTML\nHTML(f'<p>{x}')\n```\n"
    done = run("run", "--executor", "session", "-", given=message)
    assert (done.returncode, done.stdout) == (0, "here\n<IPython.core.display.HTML object>\n"), (
        done.stderr
    )
    made = notes(done.stderr)[-1].removeprefix("made ").split(" (")[0]
    assert (here / made).read_text() == "<p>41"
    found = json.loads(run("run", "--executor", "session", "--json", "-", given=message).stdout)
    assert (found["exit_code"], found["session_restored"], len(found["blocks"])) == (0, False, 3)
    assert [Path(name).suffix for name in found["output_files"]] == [".html"]


def test_a_session_that_was_restored_is_told_of(sandbox: None) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    done = run("run", "--executor", "session", "-c", "import os; os._exit(5)")
    assert done.returncode == 5
    assert notes(done.stderr)[-1].startswith("exit code 5; The session was ")


# where it runs


def test_an_empty_work_folder_of_ours_goes_again(here: Path) -> None:
    assert local("-c", "print(1)").returncode == 0
    assert list(here.iterdir()) == []


def test_other_work_folders_stay(here: Path) -> None:
    (here / "coding").mkdir()
    local("-c", "print(1)")
    local("-c", "print(1)", "--work-dir", "deep/er")
    assert (here / "coding").is_dir()
    assert (here / "deep" / "er").is_dir()


def test_a_work_folder_that_cannot_be_made_is_our_failure(here: Path) -> None:
    (here / "coding").write_text("in the way")
    done = local("-c", "print(1)")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "cellblock: The work folder coding cannot be made: File exists. Name another with --work-dir.\n"
    )


def test_the_local_executor_warns_in_one_line() -> None:
    first = local("-c", "print(1)").stderr.splitlines()[0]
    assert first.startswith(
        "--- Using LocalCommandLineCodeExecutor may execute code on the local machine"
    )


@pytest.mark.usefixtures("sandbox")
def test_the_network_is_there_when_it_is_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        )
        assert run("run", "-c", code).returncode == 1
        assert run("run", "--network", "-c", code).returncode == 0


# limits


def test_a_time_limit_is_named(executor: str) -> None:
    code = "import time; print('begun', flush=True); time.sleep(60)"
    done = run("run", "--executor", executor, "--timeout", "1", "-c", code)
    assert (done.returncode, done.stdout) == (124, "begun\n")
    assert notes(done.stderr)[-1] == "Timeout; limit wall_seconds; exit code 124"


@pytest.mark.usefixtures("sandbox")
def test_a_memory_limit_holds() -> None:
    done = run("run", "--memory", "64M", "-c", "x = bytearray(500_000_000)")
    assert done.returncode == 137 or "MemoryError" in done.stderr
    assert run("run", "--memory", "1G", "-c", "x = bytearray(500_000_000)").returncode == 0


# as it happens, or at the end


def test_output_is_there_while_the_block_runs(executor: str, here: Path) -> None:
    with begin("--executor", executor, "-c", WAITS) as process:
        assert line_of(process.stdout) == "first\n"
        (here / "coding" / "go").touch()
        assert line_of(process.stdout) == "last\n"
        assert process.wait(15) == 0


def test_output_is_held_back_when_that_is_asked_for(here: Path) -> None:
    with begin("--executor", "local", "--no-stream", "-c", WAITS) as process:
        assert process.stdout is not None
        until((here / "coding" / "there").exists)
        assert select.select([process.stdout], [], [], 0.3)[0] == []
        (here / "coding" / "go").touch()
        assert process.stdout.read() == b"first\nlast\n"


def test_a_reader_who_leaves_is_not_an_error() -> None:
    with begin("--executor", "local", "-c", "while True: print('x' * 1000)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert line_of(process.stdout).startswith("x")
        process.stdout.close()
        assert notes(process.stderr.read().decode()) == ["block 1 of 1: python"]


def test_a_full_disk_is_a_message() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "run", "--executor", "local", "-c", "print(1)"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr.endswith(b"cellblock: [Errno 28] No space left on device\n")


# the result as JSON


def test_json_is_all_there_is(executor: str) -> None:
    code = "import sys; print('out'); open('made', 'w').write('abc'); sys.exit('\u00e9rr')"
    done = run("run", "--executor", executor, "--json", "-c", code)
    assert (done.returncode, done.stderr) == (1, "")
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["exit_code"], result["outcome"], result["limit"]) == (1, "error", None)
    assert (result["stdout"], result["stderr"]) == ("out\n", "\u00e9rr\n")
    assert result["output"] == "out\n\u00e9rr\n"
    assert result["files"] == ["made"]
    assert result["displays"] == []
    assert result["usage"]["wall_seconds"] > 0
    assert result["code_file"].startswith("coding/tmp_code_")
    assert [block["exit_code"] for block in result["blocks"]] == [1]


def test_failures_of_ours_print_no_json() -> None:
    done = local("--json", "-c", "1", "--package", "not a name")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("cellblock: 'not a name' is not a requirement.")


# packages


def test_what_uv_says_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    done = local("-c", "1", "--package", "no-such-thing")
    assert done.returncode == 3
    assert any(line.startswith("uv: Using ") for line in notes(done.stderr))
    assert "\ncellblock: Cannot install no-such-thing" in done.stderr


# Ctrl-C


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_everything(executor: str, here: Path, number: int, code: int) -> None:
    heart = here / "coding" / "heart"
    with begin("--executor", executor, "-c", HEART) as process:
        assert line_of(process.stdout) == "begun\n"
        until(heart.exists)
        process.send_signal(number)
        assert process.wait(15) == code
        assert stands_still(heart)
        assert process.stderr is not None
        assert (
            notes(process.stderr.read().decode())[-1] == "Cancelled: Code execution was cancelled"
        )
    assert left_over(here) == []
    assert [path.name for path in (here / "coding").iterdir()] == ["heart"]


def test_more_interrupts_leave_nothing_behind_either(executor: str, here: Path) -> None:
    heart = here / "coding" / "heart"
    with begin("--executor", executor, "-c", HEART) as process:
        assert line_of(process.stdout) == "begun\n"
        until(heart.exists)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        # Python no longer listens in its last moments; shells say 130 of both.
        assert process.returncode in (130, -signal.SIGINT)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read().decode()
        assert stands_still(heart)
    assert left_over(here) == []
    assert [path.name for path in (here / "coding").iterdir()] == ["heart"]


def test_an_interrupted_result_is_still_printed() -> None:
    with begin("--executor", "local", "--json", "-c", WAITS) as process:
        until(Path("coding/there").exists)
        process.terminate()
        out, err = process.communicate(timeout=15)
    result: dict[str, Any] = json.loads(out)
    assert (process.returncode, err) == (143, b"")
    assert (result["outcome"], result["exit_code"], result["stdout"]) == (
        "cancelled",
        125,
        "first\n",
    )


def test_an_interrupt_ends_the_installation_of_packages(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{index.getsockname()[1]}/simple")
        with begin(
            "--executor", "local", "--package", "something", "-c", "print('never')"
        ) as process:
            index.settimeout(15)
            visitor, _ = index.accept()
            with visitor:
                visitor.settimeout(15)
                assert visitor.recv(1 << 16).startswith(
                    b"GET "
                )  # uv, who waits for an answer from now on
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=15)
                assert visitor.recv(1) == b""  # it is gone
    assert (process.returncode, out) == (130, b"")
    assert notes(err.decode())[-1] == "cancelled"
    assert list((tmp_path / "cache").rglob("*.partial")) == []
    assert list(here.iterdir()) == []
