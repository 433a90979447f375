"""The command where the sandbox, a missing program or a missing option is the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable_reason
from tests.cli.cli_process import COMMAND, notes, run_command, run_locally


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    return tmp_path / "cwd"


@pytest.fixture
def sandbox() -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)


# what failed in a block


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://example.com')",
        "import socket; socket.create_connection(('192.0.2.1', 80))",
    ],
)
def test_missing_network_names_its_option(code: str) -> None:
    advice = notes(run_command("run", "-c", code).stderr)[-1]
    assert "no network" in advice
    assert "--network" in advice


def test_missing_module_names_the_package_to_install() -> None:
    names = {"sklearn.svm": "scikit-learn", "cv2": "opencv-python-headless", "nosuch": "nosuch"}
    for module, package in names.items():
        code = f"import sys; sys.path = sys.path[:3]; import {module}"  # without site-packages
        done = run_locally("-c", code)
        assert f"--package {package} " in notes(done.stderr)[-1], done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["-c", "open('data.csv')"], ["-c", "cat data.csv", "--language", "sh"]],
)
def test_file_beside_the_command_names_the_option_that_gives_it(arguments: list[str]) -> None:
    Path("data.csv").write_text("a,b\n")
    advice = notes(run_locally(*arguments).stderr)[-1]
    assert advice.startswith(
        "data.csv is in the current folder, but blocks run in the folder coding"
    )
    assert "--work-dir ." in advice
    assert "--work-dir" not in run_locally("--work-dir=.", *arguments).stderr


def test_file_beside_the_command_in_the_home_folder_is_to_be_copied(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(cwd))
    Path("data.csv").touch()
    advice = notes(run_locally("-c", "open('data.csv')").stderr)[-1]
    assert advice.endswith("coding: copy it there")


@pytest.mark.usefixtures("sandbox")
def test_file_beside_the_prompt_is_named_also_for_a_shell_command() -> None:
    Path("data.csv").touch()
    for code in ("open('data.csv')", "!cat data.csv"):
        assert "--work-dir ." in notes(run_command("repl", given=code).stderr)[-1]


def test_handled_failure_gives_no_advice() -> None:
    code = "import sys; print(\"ModuleNotFoundError: No module named 'yaml'\", file=sys.stderr)"
    assert not [line for line in notes(run_locally("-c", code).stderr) if "--package" in line]


def test_limits_have_units_and_options() -> None:
    code = "import time; time.sleep(60)"
    done = run_locally("--timeout", "1", "-c", code)
    assert notes(done.stderr)[-1] == "Timeout: the time limit of 1 s, see --timeout; exit code 124"


# what cannot be started


def test_unavailable_sandbox_names_the_option_for_another_executor() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot create a user namespace")
    done = subprocess.run(
        [*argv, *COMMAND, "run", "-c", "print(1)"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        pytest.skip("the sandbox needs no further user namespace here")
    assert done.returncode == 3
    assert "--executor docker" in done.stderr
    assert "CodeExecutor" not in done.stderr
    assert "isolation=" not in done.stderr


@pytest.mark.parametrize(("program", "name"), [("dockerd", "Docker"), ("podman", "Podman")])
def test_stopped_engine_is_called_stopped(
    program: str, name: str, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiodocker", reason="aiodocker is not installed: the extra `docker`")
    programs = cwd.parent / "programs"
    programs.mkdir()
    (programs / program).write_text("#!/bin/sh\n")
    (programs / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{cwd}/no.sock")
    done = run_command("run", "--executor", "docker", "-c", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{name} is installed but" in done.stderr
    assert "not running" in done.stderr


def test_clean_works_without_an_engine(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiodocker", reason="aiodocker is not installed: the extra `docker`")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{cwd}/no.sock")
    done = run_command("clean")  # it may find what another test has left behind
    assert done.returncode == 0
    assert done.stderr.startswith("Containers were not checked. ")


def test_uv_failure_is_printed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    done = run_locally("-c", "1", "--package", "no-such-thing")
    assert done.returncode == 3
    assert done.stderr.count("No solution found") == 1
    assert "ctivate" not in done.stderr


# what was not given


def test_command_alone_prints_its_help() -> None:
    done = run_command()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_command("--help").stdout


def test_run_without_file_reads_standard_input() -> None:
    assert run_locally(given="```python\nprint(6 * 7)\n```").stdout == "42\n"
    assert run_locally("--language", "sh", given="echo a").stdout == "a\n"


def test_run_without_file_at_a_terminal_is_a_usage_error() -> None:
    launch = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    done = subprocess.run(
        [sys.executable, "-c", launch, *COMMAND, "run"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "give either a FILE or -c CODE" in done.stdout


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("executor", ["local", "session"])
def test_input_without_anybody_to_ask_says_where_it_works(executor: str) -> None:
    done = run_command("run", "--executor", executor, "-c", "input()")
    assert "EOFError" in done.stderr
    assert any("`cellblock repl`" in note for note in notes(done.stderr))


def test_a_crash_is_named_beside_its_exit_code() -> None:
    done = run_locally("-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert "exit code 139 (SIGSEGV: Segmentation fault)" in notes(done.stderr)
