"""`cellblock run` as a process."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from cellblock.sandbox.probe import unavailable_reason
from tests.cli.cli_process import COMMAND, notes, run_command, run_locally, start_run
from tests.suite.tiers import exhaustive

EXECUTORS = ["sandbox", "local"]
# Two processes that hold a lock until they are killed.
HOLD_FOREVER = """
import fcntl, os, signal
file = open("held", "w")
fcntl.flock(file, fcntl.LOCK_SH)
if os.fork() == 0:
    print("started", flush=True)
while True:
    signal.pause()
"""
BIG_OUTPUT = "for i in range(30_000): print(f'{i:099}')"
WAIT_FOR_FILE = """
import os, time
print("first", flush=True)
open("there", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print("last")
"""


@pytest.fixture(params=exhaustive(EXECUTORS))
def executor(request: pytest.FixtureRequest) -> str:
    if request.param == "sandbox" and (reason := unavailable_reason()):
        pytest.skip(reason)
    return request.param


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.01)


def read_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def wait_for_all_to_end(held: Path) -> None:
    """Wait until no process holds the file's lock any more."""
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)


# input


@pytest.mark.depends_on_user
def test_message_runs_block_by_block(executor: str, cwd: Path) -> None:
    Path("message.md").write_text(
        "Do:\n```sh\necho one; printf two >&2; echo data > made.txt\n```\n"
        "This is a table:\n```text\nno\n```\n"
        "```python\n# filename: second.py\nprint('three')\nraise SystemExit(7)\n```\n"
        "```python\nprint('never')\n```\n"
    )
    done = run_command("run", "--executor", executor, "message.md")
    assert (done.returncode, done.stdout) == (7, "one\nthree\n")
    assert notes(done.stderr) == [
        "not run: 1 x text",
        "block 1 of 3: sh",
        "created coding/made.txt (5 bytes)",
        "block 2 of 3: python (second.py)",
        "exit code 7",
    ]
    assert "two\n--- created" in done.stderr
    assert (cwd / "coding" / "made.txt").read_text() == "data\n"


def test_note_is_on_its_own_line_if_both_streams_share_a_pipe() -> None:
    code = "import sys; print('half', end=''); sys.exit(3)"
    command = [*COMMAND, "run", "--executor", "local", "-c", code]
    pipe = subprocess.PIPE
    done = subprocess.run(command, stdout=pipe, stderr=subprocess.STDOUT, check=False)
    assert done.stdout.endswith(b"half\n--- exit code 3\n")


def test_code_is_read_from_files_options_and_standard_input_in_its_encoding() -> None:
    latin = b"# coding: latin-1\r\nprint(ascii('caf\xe9'))\r\n"
    Path("program.py").write_text("print('```')")
    Path("latin.py").write_bytes(latin)
    Path("program.txt").write_text("echo b")
    Path("message.md").write_text("```python\nprint(ascii('caf\u00e9'))\n```", encoding="utf-16")
    outputs = {
        ("-", b"\xef\xbb\xbf```python\nprint(1)\n```"): "1\n",
        ("- --language sh", b"echo a"): "a\n",
        ("- --language python", latin): "'caf\\xe9'\n",
        ("latin.py", b""): "'caf\\xe9'\n",
        ("message.md", b""): "'caf\\xe9'\n",
        ("program.py", b""): "```\n",
        ("program.txt --language sh", b""): "b\n",
        ("-c print('c')", b""): "c\n",
        ("-c pwd;exit --language bash", b""): f"{Path.cwd()}/coding\n",
    }
    found = {
        (arguments, given): run_locally(*arguments.split(), given=given).stdout
        for arguments, given in outputs
    }
    assert found == outputs
    done = run_locally("-", given="```klingon\nQapla'\n```")
    assert (done.returncode, done.stdout) == (1, "")
    assert notes(done.stderr)[-1] == "unknown language klingon; exit code 1"


def test_file_that_cannot_be_decoded_is_a_usage_error() -> None:
    Path("program.py").write_bytes(b"print('caf\xe9')\n")
    Path("message.md").write_bytes(b"caf\xe9\n```python\nprint(1)\n```")
    for arguments, name in (
        (["program.py"], "program.py"),
        (["message.md"], "message.md"),
        (["-"], "standard input"),
    ):
        done = run_locally(*arguments, given=Path("message.md").read_bytes())
        assert (done.returncode, done.stdout) == (2, "")
        assert f"cellblock: {name} " in done.stderr
        assert "Save it as UTF-8" in done.stderr


@pytest.mark.usefixtures("sandbox")
def test_session_blocks_share_variables(cwd: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    message = "```python\nx = 41\n```\n```sh\necho here\n```\n"
    message += "```python\nfrom IPython.display import HTML\nHTML(f'<p>{x}')\n```\n"
    done = run_command("run", "--executor", "session", "-", given=message)
    shown = "here\n<IPython.core.display.HTML object>\n"
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
    created = notes(done.stderr)[-1].removeprefix("created ").split(" (")[0]
    assert (cwd / created).read_text() == "<p>41"
    done = run_command("run", "--executor", "session", "--json", "-", given=message)
    found = json.loads(done.stdout)
    assert (found["exit_code"], found["session_restored"], len(found["blocks"])) == (0, False, 3)
    assert [Path(name).suffix for name in found["output_files"]] == [".html"]
    done = run_command("run", "--executor", "session", "-c", "import os; os._exit(5)")
    assert done.returncode == 5
    assert notes(done.stderr)[-1].startswith("exit code 5; The session was ")


# work folder and network


def test_a_notebook_runs_in_one_session_until_a_cell_fails(cwd: Path) -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)
    cells = ["x = 6\n", ["%time y = 7\n", "x * y"], " ", "open('there', 'w')\n1 / 0", "print('no')"]
    notebook: dict[str, Any] = {
        "cells": [
            {"cell_type": "markdown", "source": "# Title"},
            *({"cell_type": "code", "source": cell} for cell in cells),
        ],
    }
    (cwd / "nb.ipynb").write_text(json.dumps(notebook))
    done = run_command("run", "nb.ipynb")
    assert (done.returncode, "42\n" in done.stdout, "no" in done.stdout) == (1, True, False), done
    assert "ZeroDivisionError" in done.stdout + done.stderr
    assert (cwd / "coding" / "there").exists()
    notebook["metadata"] = {"kernelspec": {"language": "R"}}
    (cwd / "r.ipynb").write_text(json.dumps(notebook))
    (cwd / "broken.ipynb").write_text("[]")
    for arguments, expected in {
        ("r.ipynb",): "is a notebook in R",
        ("broken.ipynb",): "broken.ipynb is no notebook: the file holds no JSON object",
        ("nb.ipynb", "--executor", "local"): "use --executor session or docker-session",
    }.items():
        done = run_command("run", *arguments)
        assert (done.returncode, expected in done.stderr) == (2, True), done


def test_only_the_empty_default_work_folder_is_removed(cwd: Path) -> None:
    done = run_locally("-c", "print(1)")
    warning = "--- Using LocalCommandLineCodeExecutor may execute code on the local machine"
    assert done.stderr.splitlines()[0].startswith(warning)
    assert (done.returncode, list(cwd.iterdir())) == (0, [])
    (cwd / "coding").mkdir()
    run_locally("-c", "print(1)")
    run_locally("-c", "print(1)", "--work-dir", "deep/er")
    assert (cwd / "deep" / "er").is_dir()
    (cwd / "coding").rmdir()
    (cwd / "coding").write_text("in the way")
    done = run_locally("-c", "print(1)")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "cellblock: The work folder coding cannot be created: File exists. "
        "Use another with --work-dir.\n"
    )


@pytest.mark.depends_on_user
@pytest.mark.usefixtures("sandbox")
def test_network_option_allows_network_access() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        code = f"import socket; socket.create_connection({address}, 5)"
        assert run_command("run", "-c", code).returncode == 1
        assert run_command("run", "--network", "-c", code).returncode == 0


# limits


def test_time_limit_is_in_the_summary(executor: str) -> None:
    code = "import time; print('started', flush=True); time.sleep(60)"
    done = run_command("run", "--executor", executor, "--timeout", "1", "-c", code)
    assert (done.returncode, done.stdout) == (124, "started\n")
    told = "Timeout: the time limit of 1 s, see --timeout; exit code 124"
    assert notes(done.stderr)[-1] == told


@pytest.mark.depends_on_user
@pytest.mark.usefixtures("sandbox")
@pytest.mark.slow
def test_limits_of_files_and_memory_are_in_the_summary() -> None:
    code = "for number in range(2000): open(f'{number}', 'w').close()"
    done = run_command("run", "--files", "1000", "-c", code)
    assert done.returncode == 137
    told = "Killed: the limit of new files of 1000, see --files; exit code 137"
    assert notes(done.stderr)[-1] == told
    assert run_command("run", "--files", "1", "-c", "print(1)").returncode == 0
    done = run_command("run", "--memory", "64M", "-c", "x = bytearray(200_000_000)")
    assert done.returncode == 137
    assert run_command("run", "--memory", "1G", "-c", "x = bytearray(200_000_000)").returncode == 0


# streaming


def test_output_is_streamed_while_the_block_runs(executor: str, cwd: Path) -> None:
    with start_run("--executor", executor, "-c", WAIT_FOR_FILE) as process:
        assert read_line(process.stdout) == "first\n"
        (cwd / "coding" / "go").touch()
        assert read_line(process.stdout) == "last\n"
        assert process.wait() == 0


@pytest.mark.slow
def test_only_output_that_is_not_streamed_is_cut_which_is_noted() -> None:
    Path("big.py").write_text(BIG_OUTPUT)
    done = run_locally("big.py")
    assert (done.returncode, done.stdout) == (0, "".join(f"{i:099}\n" for i in range(30_000)))
    assert [note for note in notes(done.stderr) if "left out" in note] == []
    found = json.loads(run_locally("--json", "big.py").stdout)
    assert (found["truncated"], found["blocks"][0]["truncated"]) == (True, True)
    done = run_locally("--no-stream", "big.py")
    assert len(done.stdout) < 3_000_000
    assert notes(done.stderr)[-1].startswith("1.9 MiB of output are left out: ")
    assert json.loads(run_locally("--json", "-c", "print(1)").stdout)["truncated"] is False


def test_no_stream_prints_output_at_the_end(cwd: Path) -> None:
    with start_run("--executor", "local", "--no-stream", "-c", WAIT_FOR_FILE) as process:
        assert process.stdout is not None
        wait_until((cwd / "coding" / "there").exists)
        assert select.select([process.stdout], [], [], 0.3)[0] == []
        (cwd / "coding" / "go").touch()
        assert process.stdout.read() == b"first\nlast\n"


def test_closed_output_pipe_is_not_an_error() -> None:
    with start_run("--executor", "local", "-c", "while True: print('x' * 1000)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert read_line(process.stdout).startswith("x")
        process.stdout.close()
        assert notes(process.stderr.read().decode()) == ["block 1 of 1: python"]


@pytest.mark.parametrize("unbuffered", exhaustive(["", "1"]))
def test_full_disk_is_reported(unbuffered: str) -> None:
    command = [*COMMAND, "run", "--executor", "local", "-c", "print(1)"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment)
    assert done.returncode == 3
    assert done.stderr.endswith(b"cellblock: [Errno 28] No space left on device\n")


# the result as JSON


def test_json_option_prints_only_json(executor: str) -> None:
    code = "import sys; print('out'); open('made', 'w').write('abc'); sys.exit('\u00e9rr')"
    done = run_command("run", "--executor", executor, "--json", "-c", code)
    assert (done.returncode, done.stderr) == (1, "")
    result: dict[str, Any] = json.loads(done.stdout)
    expected: dict[str, object] = {
        **{"exit_code": 1, "outcome": "error", "limit": None},
        **{"stdout": "out\n", "stderr": "\u00e9rr\n", "output": "out\n\u00e9rr\n"},
        **{"files": ["made"], "displays": []},
    }
    assert {name: result[name] for name in expected} == expected
    assert result["usage"]["wall_seconds"] > 0
    assert os.path.isabs(result["code_file"])
    assert "/coding/tmp_code_" in result["code_file"]
    assert [block["exit_code"] for block in result["blocks"]] == [1]


def test_what_cannot_be_installed_prints_messages_of_uv_once_and_no_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = run_locally("--json", "-c", "1", "--package", "not a name")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("cellblock: 'not a name' is not a requirement.")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    done = run_locally("-c", "1", "--package", "no-such-thing")
    assert done.returncode == 3
    assert any(line.startswith("uv: Using ") for line in notes(done.stderr))
    assert "\ncellblock: Cannot install no-such-thing" in done.stderr
    assert done.stderr.count("No solution found") == 1
    assert "ctivate" not in done.stderr


# packages


# Ctrl-C


@pytest.mark.depends_on_user
@pytest.mark.parametrize(
    ("number", "code"), exhaustive([(signal.SIGINT, 130), (signal.SIGTERM, 143)])
)
def test_interrupt_ends_all_processes(
    executor: str, cwd: Path, temporary: Path, number: int, code: int
) -> None:
    held = cwd / "coding" / "held"
    with start_run("--executor", executor, "-c", HOLD_FOREVER) as process:
        assert read_line(process.stdout) == "started\n"
        process.send_signal(number)
        assert process.wait() == code
        wait_for_all_to_end(held)
        assert process.stderr is not None
        assert (
            notes(process.stderr.read().decode())[-1] == "Cancelled: Code execution was cancelled"
        )
    assert list(temporary.iterdir()) == []
    assert [path.name for path in (cwd / "coding").iterdir()] == ["held"]


@pytest.mark.parametrize("number", exhaustive([signal.SIGINT, signal.SIGTERM]))
def test_session_that_ignores_an_interrupt_is_ended(number: int) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    code = (
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.write(1, b'begun\\n')\nwhile True: signal.pause()"
    )
    with start_run("--executor", "session", "--timeout", "3600", "-c", code) as process:
        assert read_line(process.stdout) == "begun\n"
        process.send_signal(number)
        assert process.stderr is not None
        read_line(process.stderr)  # the name of the block
        assert "the code is being stopped" in read_line(process.stderr)
        if number == signal.SIGINT:
            process.send_signal(number)
        assert process.wait() == 128 + number


def test_repeated_interrupts_leave_nothing_behind(
    executor: str, cwd: Path, temporary: Path
) -> None:
    held = cwd / "coding" / "held"
    with start_run("--executor", executor, "-c", HOLD_FOREVER) as process:
        assert read_line(process.stdout) == "started\n"
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        # While Python exits, the signal itself ends the process; shells report 130 for both.
        assert process.returncode in (130, -signal.SIGINT)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read().decode()
        wait_for_all_to_end(held)
    assert list(temporary.iterdir()) == []
    assert [path.name for path in (cwd / "coding").iterdir()] == ["held"]


def test_interrupted_result_is_printed_as_json() -> None:
    with start_run("--executor", "local", "--json", "-c", WAIT_FOR_FILE) as process:
        wait_until(Path("coding/there").exists)
        process.terminate()
        out, err = process.communicate()
    result: dict[str, Any] = json.loads(out)
    assert (process.returncode, err) == (143, b"")
    found = (result["outcome"], result["exit_code"], result["stdout"])
    assert found == ("cancelled", 125, "first\n")


def test_interrupt_ends_package_installation(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{index.getsockname()[1]}/simple")
        with start_run(
            "--executor", "local", "--package", "something", "-c", "print('never')"
        ) as process:
            connection, _ = index.accept()
            with connection:
                assert connection.recv(1 << 16).startswith(b"GET ")  # uv now waits for a reply
                process.send_signal(signal.SIGINT)
                out, err = process.communicate()
                assert connection.recv(1) == b""  # uv has ended
    assert (process.returncode, out) == (130, b"")
    assert notes(err.decode())[-1] == "cancelled"
    assert list((tmp_path / "cache").rglob("*.partial")) == []
    assert list(cwd.iterdir()) == []
