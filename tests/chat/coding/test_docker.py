"""Docker: AutoGen 0.2's executor, and the dict form of `code_execution_config`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cellblock import ContainerEngineUnavailable, ImageUnavailable
from cellblock.chat import ConversableAgent, UserProxyAgent
from cellblock.chat.code_utils import execute_code, is_docker_running
from cellblock.chat.coding import CodeBlock, DockerCommandLineCodeExecutor
from cellblock.chat.coding.docker_commandline_code_executor import container_options
from cellblock.chat.coding.jupyter import DockerJupyterServer, JupyterCodeExecutor
from tests.chat.console import console
from tests.containers import docker_engine

READ_ROOT = "import os; print(os.path.exists('/.dockerenv'), os.getcwd())"


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.use_shared_engine(monkeypatch, "python")


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


def agent(**config: object) -> ConversableAgent:
    return ConversableAgent(
        "a", llm_config=False, human_input_mode="NEVER", code_execution_config=config
    )


def message(code: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"```python\n{code}\n```"}]


@pytest.mark.slow
@pytest.mark.engine
def test_the_container_starts_at_once(image: str, tmp_path: Path) -> None:
    with DockerCommandLineCodeExecutor(image, work_dir=tmp_path) as executor:
        assert executor.container is not None
        blocks = [CodeBlock(code=READ_ROOT, language="py"), CodeBlock("echo sh", "sh")]
        result = executor.execute_code_blocks(blocks)
        assert result.output == "True /workspace\nsh\n"
        assert executor.bind_dir == tmp_path
        assert len(list(tmp_path.iterdir())) == 2, "files are kept"
        saved = executor.execute_code_blocks([CodeBlock("x", "javascript")])
        assert saved.output == f"Code saved to {saved.code_file}\n"
        unknown = executor.execute_code_blocks([CodeBlock("x", "zz")])
        assert (unknown.exit_code, unknown.output) == (1, "Unsupported language zz\n")
        executor.restart()
        assert executor.execute_code_blocks(blocks).exit_code == 0


@pytest.mark.slow
@pytest.mark.engine
def test_the_container_is_removed_by_stop(image: str, tmp_path: Path) -> None:
    executor = DockerCommandLineCodeExecutor(image, work_dir=tmp_path)
    name = executor.container
    assert name is not None
    executor.stop()
    listed = docker_engine.shared_engine().docker("ps", "--all", "--format", "{{.Names}}")
    assert name not in listed.split()


def test_options_of_the_container_have_the_names_of_ag2() -> None:
    gpus = [{"Count": -1, "Capabilities": [["gpu"]]}]
    given = {
        "environment": ["A=1", "B=2=3"],
        "device_requests": gpus,
        "volumes": {"/data": {"bind": "/data", "mode": "ro"}},
        "network_mode": "none",
    }
    assert container_options(given) == {
        "environment": {"A": "1", "B": "2=3"},
        "device_requests": gpus,
        "extra_volumes": {"/data": {"bind": "/data", "mode": "ro"}},
        "network": "none",
    }
    with pytest.raises(TypeError, match="are not offered: entrypoint, tty"):
        DockerCommandLineCodeExecutor(container_create_kwargs={"tty": True, "entrypoint": "sh"})


def test_without_an_engine_the_constructor_fails(no_engine: None, tmp_path: Path) -> None:
    with pytest.raises(ContainerEngineUnavailable):
        DockerCommandLineCodeExecutor(work_dir=tmp_path)


@pytest.mark.engine
def test_use_docker_names_the_image(image: str, tmp_path: Path) -> None:
    one = agent(use_docker=image, work_dir=str(tmp_path))
    assert one.use_docker == image
    reply = one.generate_reply(message(READ_ROOT))
    assert reply == "exitcode: 0 (execution succeeded)\nCode output: \nTrue /workspace\n"
    # The container is kept: what code installs is there for later code.
    one.generate_reply(message("open('/tmp/kept', 'w').write('k')"))
    assert "\nk" in str(
        asyncio.run(one.a_generate_reply(message("print(open('/tmp/kept').read())")))
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.engine
def test_use_docker_lists_images_of_which_the_first_that_exists_is_used(image: str) -> None:
    with console() as stream:
        result = execute_code("print(1)", use_docker=["localhost:1/missing", image])
    assert result == (0, "1\n", image)
    assert stream.text.endswith("Failed to pull image localhost:1/missing\n")


@pytest.mark.slow
@pytest.mark.engine
def test_no_image_at_all_is_an_error(image: str) -> None:
    with console(), pytest.raises(ImageUnavailable, match="localhost:1/missing"):
        execute_code("print(1)", use_docker="localhost:1/missing")


@pytest.mark.slow
@pytest.mark.engine
def test_errors_are_shown_without_the_path(image: str) -> None:
    exit_code, logs, _ = execute_code("1/0", use_docker=image)
    assert exit_code == 1
    assert 'File "", line 1' in logs


@pytest.mark.engine
def test_whether_docker_runs(image: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert is_docker_running()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert not is_docker_running()


def test_without_an_engine_docker_is_an_error_that_says_what_to_do(
    no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.chat.code.docker_use._CONTAINER_MARK", "/nonexistent")
    monkeypatch.delenv("AUTOGEN_USE_DOCKER", raising=False)
    for config in ({}, {"use_docker": True}, {"use_docker": "python:3"}):
        with pytest.raises(RuntimeError, match='- Set "use_docker": False in code_execution'):
            UserProxyAgent("user", code_execution_config=config)
    with pytest.raises(RuntimeError, match="docker is not running"):
        execute_code("print(1)")


def test_without_an_engine_code_in_a_container_runs_in_the_sandbox(
    no_engine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    monkeypatch.setattr("cellblock.chat.code.docker_use._CONTAINER_MARK", str(mark))
    reply = agent(use_docker=True).generate_reply(message("import os; print(os.getcwd())"))
    assert str(reply).endswith("\n/workspace\n")


def test_use_docker_none_takes_the_sandbox_where_docker_is_missing(
    no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEN_USE_DOCKER", "None")
    assert execute_code("import os; print(os.getcwd())") == (0, "/workspace\n", None)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.kernel
def test_a_jupyter_server_in_a_container_starts_at_once(image: str, tmp_path: Path) -> None:
    token = DockerJupyterServer.GenerateToken()
    with DockerJupyterServer(base_image=image, token=token) as server:
        assert server.is_running()
        with JupyterCodeExecutor(server, output_dir=tmp_path) as executor:
            assert (
                executor.execute_code_blocks([CodeBlock("print(6*7)", "python")]).output == "42\n"
            )
