"""The command where the sandbox, a missing program or a missing option is the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_process import COMMAND, notes, run_command, run_locally
from tests.suite.tiers import exhaustive

# what failed in a block


@pytest.mark.usefixtures("sandbox")
def test_missing_network_names_its_option() -> None:
    for code in (
        "import urllib.request; urllib.request.urlopen('http://example.com')",
        "import socket; socket.create_connection(('192.0.2.1', 80))",
    ):
        advice = notes(run_command("run", "-c", code).stderr)[-1]
        assert "no network" in advice
        assert "--network" in advice


def test_missing_module_names_the_package_to_install() -> None:
    names = {"sklearn.svm": "scikit-learn", "cv2": "opencv-python-headless", "nosuch": "nosuch"}
    for module, package in names.items():
        code = f"import sys; sys.path = sys.path[:3]; import {module}"  # without site-packages
        done = run_locally("-c", code)
        assert f"--package {package} " in notes(done.stderr)[-1], done.stderr


def test_file_beside_the_command_names_the_option_that_gives_it(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("data.csv").write_text("a,b\n")
    python, shell = ["-c", "open('data.csv')"], ["-c", "cat data.csv", "--language", "sh"]
    told = "data.csv is in the current folder, but blocks run in the folder coding"
    for arguments in (python, shell):
        advice = notes(run_locally(*arguments).stderr)[-1]
        assert advice.startswith(told)
        assert "--work-dir ." in advice
        assert "--work-dir" not in run_locally("--work-dir=.", *arguments).stderr
    monkeypatch.setenv("HOME", str(cwd))
    advice = notes(run_locally(*python).stderr)[-1]
    assert advice.endswith("coding: copy it there")


@pytest.mark.usefixtures("sandbox")
@pytest.mark.slow
def test_file_beside_the_prompt_is_named_also_for_a_shell_command() -> None:
    Path("data.csv").touch()
    for code in ("open('data.csv')", "!cat data.csv"):
        assert "--work-dir ." in notes(run_command("repl", given=code).stderr)[-1]


def test_handled_failure_gives_no_advice_and_a_crash_is_named() -> None:
    code = "import sys; print(\"ModuleNotFoundError: No module named 'yaml'\", file=sys.stderr)"
    assert not [line for line in notes(run_locally("-c", code).stderr) if "--package" in line]
    done = run_locally("-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert "exit code 139 (SIGSEGV: Segmentation fault)" in notes(done.stderr)


# what cannot be started


@pytest.mark.depends_on_user
def test_unavailable_sandbox_names_the_option_for_another_executor() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot create a user namespace")
    command = [*argv, *COMMAND, "run", "-c", "print(1)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        pytest.skip("the sandbox needs no further user namespace here")
    assert done.returncode == 3
    assert "--executor docker" in done.stderr
    assert "CodeExecutor" not in done.stderr
    assert "isolation=" not in done.stderr


@pytest.mark.parametrize(
    ("program", "name"), exhaustive([("dockerd", "Docker"), ("podman", "Podman")])
)
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
    done = run_command("clean")  # it may find what another test has left behind
    assert done.returncode == 0
    assert done.stderr.startswith("Containers were not checked. ")


# what was not given


def test_run_without_file_reads_standard_input_unless_it_is_a_terminal() -> None:
    assert run_locally(given="```python\nprint(6 * 7)\n```").stdout == "42\n"
    assert run_locally("--language", "sh", given="echo a").stdout == "a\n"
    launch = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    command = [sys.executable, "-c", launch, *COMMAND, "run"]
    null = subprocess.DEVNULL
    done = subprocess.run(command, stdin=null, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "give either a FILE or -c CODE" in done.stdout


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("executor", ["local", "session"])
def test_input_without_anybody_to_ask_says_where_it_works(executor: str) -> None:
    done = run_command("run", "--executor", executor, "-c", "input()")
    assert "EOFError" in done.stderr
    assert any("`cellblock repl`" in note for note in notes(done.stderr))
