"""AutoGen 0.7 uses our executors for real: its own agents, its model client, its functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.autogen import ROOT, autogen_python, run_python
from tests.suite.tiers import exhaustive

__all__ = ["autogen_python"]

pytestmark = [pytest.mark.autogen, pytest.mark.network, pytest.mark.timeout(300)]

IMPORTS = """\
import asyncio, json, sys, warnings
from autogen_agentchat.agents import ApprovalResponse, CodeExecutorAgent
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import (
    Alias, CodeBlock, CodeExecutor, FunctionWithRequirements, ImportFromModule, with_requirements,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
import cellblock
from cellblock import sync
from cellblock.integrations.autogen import AutoGenCodeExecutor
warnings.filterwarnings("ignore", "Using LocalCommandLineCodeExecutor")
warnings.filterwarnings("ignore", "No approval function set")
"""


def run_program(python: Path, code: str, *arguments: str) -> str:
    """Run a Python program, which must succeed without warnings, and return its output."""
    return run_python(python, "-W", "error", "-c", code, *arguments)


AGENT = """\
async def main():
    executor = getattr(cellblock, sys.argv[1])(work_dir=sys.argv[2])
    code = "open('made.txt', 'w').close()\\nprint(6 * 7)"
    model = ReplayChatCompletionClient([f"```python\\n{code}\\n```", "It is 42."])
    async with AutoGenCodeExecutor(executor) as ours:
        agent = CodeExecutorAgent("coder", ours, model_client=model)
        async for message in agent.run_stream(task="Six times seven?"):
            if isinstance(message, CodeExecutionEvent):
                print(message.result.details.files, message.model_dump()["result"])
        print(message.messages[-1].content)
asyncio.run(main())
"""
KINDS = [
    "SandboxCommandLineCodeExecutor",
    "LocalCommandLineCodeExecutor",
    "SandboxSessionCodeExecutor",
]


@pytest.mark.parametrize("kind", exhaustive(KINDS))
def test_an_agent_with_a_model_client_runs_its_code(
    kind: str, autogen_python: Path, tmp_path: Path
) -> None:
    assert run_program(autogen_python, IMPORTS + AGENT, kind, str(tmp_path)) == (
        "['made.txt'] {'exit_code': 0, 'output': '42\\n'}\nIt is 42.\n"
    )
    assert (tmp_path / "made.txt").exists()


DUMP = """\
executor = getattr(cellblock, sys.argv[1])(timeout=None, work_dir=sys.argv[2])
agent = CodeExecutorAgent("coder", AutoGenCodeExecutor(executor))
saved = json.loads(agent.dump_component().model_dump_json(exclude_none=True))
again = CodeExecutorAgent.load_component(saved).dump_component().config["code_executor"]
assert again == saved["config"]["code_executor"] or print(again, saved)
loaded = CodeExecutor.load_component(saved["config"]["code_executor"]).executor
print(type(loaded).__name__, loaded.timeout, loaded.work_dir)
"""


@pytest.mark.parametrize("kind", exhaustive(KINDS))
def test_an_agent_is_saved_and_loaded_with_its_executor(
    kind: str, autogen_python: Path, tmp_path: Path
) -> None:
    found = run_program(autogen_python, IMPORTS + DUMP, kind, str(tmp_path))
    assert found == f"{kind} None {tmp_path}\n"


REFUSED = """\
saved = AutoGenCodeExecutor(cellblock.SandboxCommandLineCodeExecutor()).dump_component()
saved.config["executor"]["provider"] = "os.system"
for refused in (
    lambda: CodeExecutor.load_component(saved),
    lambda: AutoGenCodeExecutor(sync.SandboxCommandLineCodeExecutor()),
):
    try:
        refused()
    except ValueError as error:
        print(error)
"""


def test_what_is_no_executor_is_refused(autogen_python: Path) -> None:
    first, second = run_program(autogen_python, IMPORTS + REFUSED).splitlines()
    assert first.startswith("'os.system' is not on the list of classes that may be loaded.")
    assert second.startswith("executor must be an executor such as cellblock.Sandbox")
    assert second.endswith("The executors of cellblock.sync cannot be used here.")


CANCEL = """\
async def main():
    token = CancellationToken()
    async with AutoGenCodeExecutor(cellblock.SandboxCommandLineCodeExecutor()) as executor:
        block = CodeBlock("open('begun', 'w').close()\\nwhile True: pass", "python")
        running = asyncio.ensure_future(executor.execute_code_blocks([block], token))
        while not (executor.executor.work_dir / "begun").exists():
            await asyncio.sleep(0.01)
        token.cancel()
        result = await running
        print(result.exit_code, result.details.outcome)
asyncio.run(main())
"""


def test_a_token_of_autogen_cancels_the_block(autogen_python: Path) -> None:
    assert run_program(autogen_python, IMPORTS + CANCEL) == "125 cancelled\n"


FUNCTIONS = """\
@with_requirements(
    global_imports=["math", Alias("statistics", "stats"), ImportFromModule("json", ["dumps"])]
)
def mean_text(values):
    return dumps(math.floor(stats.mean(values)))

def add(a, b):
    return a + b

functions = [
    mean_text,
    FunctionWithRequirements.from_callable(add),
    FunctionWithRequirements.from_str("def root(x):\\n    return math.sqrt(x)\\n", [], ["math"]),
]
code = "from functions import *\\nprint(mean_text([1, 2]), add(1, 2), root(4))"
block = CodeBlock(code, "python")
with sync.SandboxCommandLineCodeExecutor(functions=functions) as executor:
    print(executor.execute_code_blocks([block]).output, end="")
"""


@pytest.mark.slow
def test_blocks_import_functions_of_autogen(autogen_python: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # functions need a source file
    program.write_text(IMPORTS + FUNCTIONS)
    code = f"import runpy; runpy.run_path({str(program)!r})"
    assert run_program(autogen_python, code) == "1 3 2.0\n"


NO_IMPORT = """\
import sys, cellblock
for name in cellblock.__all__:
    getattr(cellblock, name)
print([name for name in sys.modules if name.startswith("autogen")])
"""


def test_importing_cellblock_does_not_import_autogen(autogen_python: Path) -> None:
    assert run_program(autogen_python, NO_IMPORT) == "[]\n"


def test_the_example_runs(autogen_python: Path) -> None:
    code = (ROOT / "examples" / "autogen_agent.py").read_text()
    assert run_program(autogen_python, code) == "The answer is 42.\n"
