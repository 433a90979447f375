"""`--env`: blocks use the packages and commands of a virtual environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from uv import find_uv_bin

from cellblock import BackendError, sync
from cellblock.environments.virtualenv import context_of
from tests.cli.cli_process import run_command
from tests.environments.test_package_commands import wheel
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.pythons
# Prints the output of the command `tiny`, which is installed in the environment only.
USE = (
    "import subprocess, tiny\nprint(subprocess.run('tiny', capture_output=True).stdout.split()[0])"
)


def make_env(folder: Path) -> Path:
    """Create a virtual environment in `folder` with the package `tiny`."""
    venv.EnvBuilder(with_pip=False).create(folder)
    program = str(folder / "bin" / "python")
    made = str(wheel(folder.parent / "wheels"))
    install = [find_uv_bin(), "pip", "install", "--offline", "--python", program, made]
    subprocess.run(install, check=True, capture_output=True)
    return folder


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an environment that also has IPython, and change to its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    folder = make_env(tmp_path / "own")
    [library] = folder.glob("lib/*/site-packages")
    (library / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return folder


@pytest.mark.parametrize("executor", exhaustive(["sandbox", "session", "local"]))
def test_blocks_use_the_packages_and_commands_of_an_environment(env: Path, executor: str) -> None:
    done = run_command("run", "--executor", executor, "--env", "own", "-c", USE)
    assert done.stdout == "b'one'\n", done.stderr
    shell = ["--language", "sh", "-c", "tiny | cut -d ' ' -f 1"]
    done = run_command("run", "--executor", executor, "--env", "own", *shell)
    assert done.stdout == "one\n", done.stderr


def test_the_prompt_uses_an_environment(env: Path) -> None:
    script = f"{USE}\n!tiny-sh\n%%sh\ntiny-sh\n\n"
    assert run_command("repl", "--env=own", given=script).stdout == "b'one'\none by sh\none by sh\n"


@pytest.mark.kernel
@pytest.mark.slow
def test_a_kernel_uses_an_environment_wherever_it_starts(env: Path, tmp_path: Path) -> None:
    from tests.kernel.live_kernel import jupyter_folders, open_kernel

    with jupyter_folders(tmp_path):
        run_command("kernel", "install", "--no-check", "--env", "own")
        spec = json.loads((tmp_path / "data/kernels/cellblock/kernel.json").read_text())
        assert spec["argv"][-1] == f"--env={env}"
        with open_kernel(tmp_path / "notebooks") as kernel:
            assert kernel.run("!tiny-sh").text() == "one by sh\n"


@pytest.mark.slow
def test_fresh_processes_of_a_server_use_an_environment(env: Path, tmp_path: Path) -> None:
    from tests.server.serving import serving

    with (
        serving(tmp_path, "--env", str(env)) as server,
        server.client(server.add_key("env")) as client,
    ):
        answer = client.post("/v1/runs", json={"code": USE}).json()
        assert answer["result"]["stdout"] == "b'one'\n", answer


def test_sessions_of_a_server_use_an_environment(env: Path) -> None:
    from tests.server.mcp.mcp_client import STDIO, connect, run_async, run_code

    async def main() -> None:
        async with connect(STDIO, "--env", str(env)) as client:
            assert (await run_code(client, "!tiny-sh"))["stdout"] == "one by sh\n"

    run_async(main())


def test_a_session_needs_ipython_and_the_command_installs_it(tmp_path: Path) -> None:
    folder = make_env(tmp_path / "bare")
    with pytest.raises(BackendError, match=r"Sessions need IPython, .*packages=\['ipython'\]"):
        sync.SandboxSessionCodeExecutor(virtual_env_context=context_of(folder)).start()
    offline = {**os.environ, "UV_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    offline["UV_CACHE_DIR"] = str(tmp_path / "uv")
    command = [sys.executable, "-m", "cellblock", "run", "--executor=session", f"--env={folder}"]
    done = subprocess.run([*command, "-c", "1"], env=offline, capture_output=True, text=True)
    assert done.returncode == 3
    assert "Cannot install ipython" in done.stderr


def test_what_is_no_environment_is_a_usage_error(tmp_path: Path) -> None:
    for command in ("run", "repl", "chat", "serve", "mcp"):
        done = run_command(command, "--env", str(tmp_path))
        assert (command, done.returncode) == (command, 2)
        assert f"{tmp_path} is not a virtual environment" in done.stderr


@pytest.mark.slow
def test_containers_have_the_python_of_their_image() -> None:
    session, docker = "--executor=docker-session", "--executor=docker"
    commands = {"run -c 1": docker, "chat task": session, "serve": docker, "mcp": docker}
    for command, executor in commands.items():
        done = run_command(*command.split(), executor, "--env", sys.prefix)
        assert (command, done.returncode) == (command, 2)
        assert "--env does not apply to containers" in done.stderr
