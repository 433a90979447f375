"""Without an SDK of OpenTelemetry, nothing of it is imported, and everything works."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.suite.tiers import exhaustive

# Uses what begins spans, then prints which modules of OpenTelemetry are imported.
PROGRAM = """
import asyncio, sys

BLOCK

from cellblock import CodeBlock, Sandbox, SandboxCommandLineCodeExecutor
from cellblock.agents import CodeExecutorAgent
from cellblock.models import ReplayChatCompletionClient
from cellblock.teams import RoundRobinGroupChat

async def use():
    async with Sandbox() as box, SandboxCommandLineCodeExecutor() as executor:
        assert (await box.exec("echo $((6 * 7))")).stdout == b"42\\n"
        await box.checkpoint("c")
        client = ReplayChatCompletionClient(["~~~python\\nprint(6 * 7)\\n~~~", "It is 42."])
        agent = CodeExecutorAgent("coder", executor, model_client=client)
        result = await RoundRobinGroupChat([agent], max_turns=1).run(task="6 * 7?")
        assert result.messages[-1].to_text() == "It is 42.", result

asyncio.run(use())
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


@pytest.mark.parametrize("block", exhaustive(["", "sys.modules['opentelemetry'] = None"]))
def test_nothing_is_imported_unless_the_program_does(block: str) -> None:
    program = PROGRAM.replace("BLOCK", block)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("['opentelemetry']\n" if block else "[]\n")


@pytest.mark.slow
def test_the_api_alone_records_nothing() -> None:
    program = PROGRAM.replace("BLOCK", "from opentelemetry import trace")
    program += "from cellblock.tracing import is_on\nassert not is_on()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "opentelemetry.sdk" not in done.stdout
