"""The command with containers: run, doctor, clean."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from cellblock.containers import orphans
from tests.cli.cli_process import run_command
from tests.containers import docker_engine
from tests.containers.image_registry import serve_image
from tests.executors.session import session_image

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.use_shared_engine(monkeypatch, "python")


def test_blocks_run_in_a_container(image: str, tmp_path: Path) -> None:
    message = (
        "```sh\necho from sh > file\n```\n```python\nprint(open('file').read(), __file__)\n```\n"
    )
    arguments = ("run", "-", "--executor", "docker", "--image", image, "--work-dir", str(tmp_path))
    done = run_command(*arguments, given=message)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("from sh\n /workspace/")
    assert (tmp_path / "file").exists()


def test_blocks_share_a_session_in_a_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = session_image.use_session_image(monkeypatch)
    message = "```python\nx = 41\n```\n```python\nx + 1\n```\n"
    arguments = ("--executor", "docker-session", "--image", image, "--work-dir", str(tmp_path))
    done = run_command("run", "-", *arguments, given=message)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    done = run_command("run", "-c", "import os; os._exit(3)", *arguments, "--json")
    assert (done.returncode, json.loads(done.stdout)["session_restored"]) == (3, True), done.stderr


@pytest.mark.slow
def test_pulling_an_image_prints_notes(tmp_path: Path) -> None:
    with serve_image(docker_engine.shared_engine().test_image("shell")) as reference:
        arguments = ("--executor", "docker", "--image", reference, "--work-dir", str(tmp_path))
        done = run_command("run", "-c", "echo here", "--language", "sh", *arguments)
        assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
        assert f"pulling {reference}: 1 of 1 layers" in done.stderr


def test_missing_container_engine_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    done = run_command("run", "-c", "print(1)", "--executor", "docker", "--work-dir", str(tmp_path))
    assert done.returncode == 3
    assert "DOCKER_HOST" in done.stderr
    assert "Traceback" not in done.stderr
    assert run_command("run", "-c", "print(1)", "--image", "x").returncode == 2


@pytest.mark.slow
def test_doctor_reports_the_container_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(run_command("doctor", "--json").stdout)["containers"]
    engine = docker_engine.shared_engine()
    assert told["available"] is True
    assert told["version"] == engine.docker("version", "--format", "{{.Server.Version}}")
    assert "runc" in told["runtimes"]
    assert told["cgroup_version"] in ("1", "2")
    assert (told["rootless"], told["holds_limits"]) == (False, True)
    assert f"engine {told['version']}" in run_command("doctor").stdout
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert "Containers cannot be used here" in run_command("doctor").stdout


def test_clean_removes_containers_of_dead_processes() -> None:
    engine, name = docker_engine.shared_engine(), f"cellblock-test-{uuid.uuid4()}"
    owner = json.dumps({"machine": orphans._machine_id(), "pid": 1 << 30, "since": "1"})
    label = f"{orphans.OWNER_LABEL}={owner}"
    engine.docker("create", "--name", name, "--label", label, engine.test_image("shell"), "sh")
    done = run_command("clean")
    assert (done.returncode, done.stderr) == (0, "")
    # Executors of other tests clean up as they start, and may have been faster.
    assert not done.stdout.strip() or name in done.stdout.split()
    assert engine.docker("ps", "--all", "--quiet", "--filter", f"name={name}") == ""


def test_clean_works_without_the_docker_extra() -> None:
    code = "import sys; sys.modules['aiodocker'] = None\n"
    code += "from cellblock.cli import main; main(['clean'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cellblock[docker]" in done.stderr
