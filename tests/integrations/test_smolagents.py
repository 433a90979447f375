"""smolagents runs the code of its agents in the sandbox: its own agents, with its own tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import PINS, run_in_framework

pytestmark = [pytest.mark.slow, pytest.mark.pythons, pytest.mark.network, pytest.mark.timeout(300)]

IMPORTS = """\
import logging, os
from smolagents import ChatMessage, CodeAgent, MessageRole, Model, tool
from cellblock.integrations.smolagents import CellblockPythonExecutor
logging.basicConfig(format="%(message).60s")

class Scripted(Model):
    def __init__(self, *blocks):
        super().__init__(model_id="scripted")
        self.blocks = iter(blocks)

    def generate(self, messages, **options):
        text = f"<code>\\n{next(self.blocks)}\\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)

@tool
def host_id(base: int) -> int:
    \"\"\"Return a number.

    Args:
        base: is added to it
    \"\"\"
    return os.getpid() + base
"""

RUN = """\
finds = Scripted("final_answer({'found': 5})")
helper = CodeAgent([], finds, name="helper", description="Finds.", verbosity_level=-1,
                   executor=CellblockPythonExecutor())
model = Scripted(
    f"import os\\nprint(host_id(base=1) == {os.getpid()} + 1, os.getpid() == {os.getpid()})\\ndata",
    "open('/etc/passwd', 'a')",
    "import json\\nfound = helper('find')\\nprint(sum(data))",
    "final_answer(len(found) > 3 and sum(data))",
)
with helper, CodeAgent([host_id], model, managed_agents=[helper], verbosity_level=-1,
                       executor=CellblockPythonExecutor(timeout=20)) as agent:
    print(agent.run("Add.", additional_args={"data": [1, 2], "lock": object()}))
    for step in agent.memory.steps[1:]:
        print(repr(step.observations), *str(step.error or "").splitlines()[-1:])
"""


def test_an_agent_runs_its_code_in_the_sandbox_and_its_tools_here(tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # tools need a source file
    program.write_text(IMPORTS + RUN)
    assert run_in_framework(PINS["smolagents"], tmp_path, program).splitlines() == [
        "3",
        "'Execution logs:\\nTrue False\\nLast output from code snippet:\\n[1, 2]'",
        "None OSError: [Errno 30] Read-only file system: '/etc/passwd'",
        "'Execution logs:\\n3\\nLast output from code snippet:\\nNone'",
        "'Execution logs:\\nLast output from code snippet:\\n3'",
    ]
