"""AutoGen 0.2's Jupyter executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import BackendError
from cellblock.chat import ConversableAgent
from cellblock.chat.coding import CodeBlock, CodeExecutor, CodeExecutorFactory, IPythonCodeResult
from cellblock.chat.coding.jupyter import (
    EmbeddedIPythonCodeExecutor,
    JupyterCodeExecutor,
    LocalJupyterServer,
)
from tests.executors.jupyter import kernels

pytestmark = pytest.mark.kernel

SHOW = (
    "from IPython.display import HTML, Image, display\n"
    "print('text')\n"
    "display(Image(data=b'\\x89PNG\\r\\n\\x1a\\n', format='png'))\n"
    "display(HTML('<b>x</b>'))"
)


@pytest.fixture(scope="module", autouse=True)
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        kernels.install_kernel_specs(patch, tmp_path_factory.mktemp("jupyter"))
        yield


@pytest.fixture(params=["embedded", pytest.param("server", marks=pytest.mark.slow)])
def executor(request: Any, tmp_path: Path) -> Iterator[Any]:
    if request.param == "embedded":
        with EmbeddedIPythonCodeExecutor(output_dir=tmp_path) as one:
            yield one
    else:
        token = LocalJupyterServer.GenerateToken()
        with LocalJupyterServer(token=token) as server:
            with JupyterCodeExecutor(server, output_dir=tmp_path) as one:
                yield one


def run(executor: Any, *codes: str) -> IPythonCodeResult:
    return executor.execute_code_blocks([CodeBlock(code, "python") for code in codes])


def test_a_kernel_keeps_its_variables(executor: Any, tmp_path: Path) -> None:
    assert isinstance(executor, CodeExecutor)
    result = run(executor, "x = 5\nprint('a')", "x")
    assert (result.exit_code, result.output.split()) == (0, ["a", "5"])
    assert run(executor, "print(x)").output == "5\n"
    failed = run(executor, "1/0")
    assert (failed.exit_code, "ZeroDivisionError" in failed.output) == (1, True)
    shown = run(executor, SHOW)
    assert len(shown.output_files) == 2
    assert all(Path(path).parent == tmp_path for path in shown.output_files)
    image, page = shown.output_files
    assert shown.output.startswith("text\n")
    assert shown.output.splitlines()[-2:] == [
        f"Image data saved to {image}",
        f"HTML data saved to {page}",
    ]
    executor.restart()
    assert "NameError" in run(executor, "x").output


def test_an_agent_replies_with_the_pictures_of_the_kernel(tmp_path: Path) -> None:
    config = {"executor": "ipython-embedded", "ipython-embedded": {"output_dir": tmp_path}}
    agent = ConversableAgent("a", llm_config=False, code_execution_config=config)
    try:
        message = {"role": "user", "content": f"```python\n{SHOW}\n```"}
        final, reply = agent.generate_code_execution_reply([message])
        assert final
        assert str(reply).count(" data saved to ") == 2
    finally:
        agent.code_executor.stop()


def test_the_folder_for_pictures_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Output directory .*none does not exist."):
        EmbeddedIPythonCodeExecutor(output_dir=tmp_path / "none")


def test_a_missing_kernel_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="nokernel"):
        EmbeddedIPythonCodeExecutor(kernel_name="nokernel", output_dir=tmp_path)


def test_the_factory_makes_executors_by_name(tmp_path: Path) -> None:
    made = CodeExecutorFactory.create(
        {"executor": "ipython-embedded", "ipython-embedded": {"output_dir": tmp_path}}
    )
    assert isinstance(made, EmbeddedIPythonCodeExecutor)
    made.stop()
    with pytest.raises(ValueError, match="Unknown code executor None"):
        CodeExecutorFactory.create({})
