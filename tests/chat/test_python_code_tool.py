"""Python as a tool of AG2's agents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from cellblock.chat.tools.python_code_tool import (
    DockerPythonEnvironment,
    PythonCodeExecutionTool,
    SystemPythonEnvironment,
    WorkingDirectory,
)

CODE = "import os\nopen('made', 'w').close()\nprint(os.getcwd())\nraise SystemExit(3)"


def answer_of(agent: ConversableAgent, code: str) -> Any:
    arguments = json.dumps({"code_execution_request": {"code": code, "libraries": []}})
    function = {"name": "python_execute_code", "arguments": arguments}
    calls = [{"id": "1", "type": "function", "function": function}]
    reply: Any = agent.generate_reply([{"role": "assistant", "content": "", "tool_calls": calls}])
    return json.loads(reply["tool_responses"][0]["content"])


def test_code_runs_in_the_sandbox_with_its_folder(tmp_path: Path) -> None:
    config = {"config_list": [{"model": "m", "api_key": "k"}]}
    agent = ConversableAgent("a", llm_config=config, human_input_mode="NEVER")
    before = os.getcwd()
    with SystemPythonEnvironment(), WorkingDirectory(tmp_path / "new"):
        assert os.getcwd() == str(tmp_path / "new")
        tool = PythonCodeExecutionTool(timeout=30)
    assert os.getcwd() == before
    tool.register_tool(agent)
    offers: Any = agent.llm_config
    [offered] = offers["tools"]
    assert offered["function"]["name"] == "python_execute_code"
    request = offered["function"]["parameters"]["properties"]["code_execution_request"]
    assert set(request["properties"]) == {"code", "libraries"}
    assert answer_of(agent, CODE) == {
        "success": False,
        "stdout": "/workspace\n",
        "stderr": "",
        "returncode": 3,
    }
    assert (tmp_path / "new/made").exists()


def test_a_tool_needs_a_folder_and_ends_at_the_time_limit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No working directory"):
        PythonCodeExecutionTool()
    with WorkingDirectory.create_tmp() as folder:
        assert Path(folder.path).is_dir()
    assert not Path(folder.path).exists()
    tool = PythonCodeExecutionTool(timeout=1, working_directory=WorkingDirectory(tmp_path))
    agent = ConversableAgent("a", human_input_mode="NEVER")
    tool.register_for_execution(agent)
    expected = {"success": False, "error": "Execution timed out after 1 seconds"}
    assert answer_of(agent, "while True: pass") == expected
    docker = DockerPythonEnvironment("python:3-slim")
    with docker:
        tool = PythonCodeExecutionTool(working_directory=WorkingDirectory(tmp_path))
    assert tool.python_environment is docker
