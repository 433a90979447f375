"""`python -m cellblock.compat script.py` runs a script as `python script.py` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.autogen import autogen_02_python
from tests.compat.programs import run_python

__all__ = ["autogen_02_python"]

LAUNCHER = ("-m", "cellblock.compat")
OLD_SCRIPT = """
import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.replay import ReplayChatCompletionClient


async def main() -> None:
    model_client = ReplayChatCompletionClient(["```python\\nprint('from a ' + 'block')\\n```"])
    executor = LocalCommandLineCodeExecutor(work_dir=sys.argv[1])
    await executor.start()
    block = CodeBlock(language="python", code="print(6 * 7)")
    print(await executor.execute_code_blocks([block], CancellationToken()))
    team = RoundRobinGroupChat(
        [AssistantAgent("coder", model_client), CodeExecutorAgent("executor", executor)],
        termination_condition=MaxMessageTermination(3),
    )
    await Console(team.run_stream(task="Print something."))
    await executor.stop()


asyncio.run(main())
"""


def test_a_script_for_autogen_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "coding").mkdir()
    (tmp_path / "old.py").write_text(OLD_SCRIPT)
    done = run_python(tmp_path, *LAUNCHER, "old.py", "coding")
    assert done.returncode == 0, done.stderr
    assert "output='42\\n'" in done.stdout
    assert done.stdout.endswith("---------- TextMessage (executor) ----------\nfrom a block\n\n")


def test_a_script_runs_with_ours_if_autogen_is_installed(tmp_path: Path) -> None:
    (tmp_path / "autogen_core.py").write_text("origin = 'installed'\n")
    (tmp_path / "old.py").write_text("import autogen_core\nprint(autogen_core)\n")
    done = run_python(tmp_path, "-W", "error", *LAUNCHER, "old.py")
    assert (done.stdout, done.stderr) == ("<module 'autogen_core' of Cellblock>\n", "")


# as `python script.py`

SCRIPTS = {
    "surroundings": (
        "import sys, other\n"
        "print(__name__, __file__, __spec__, __package__, sys.argv, sys.path[0], other.value)\n"
        "print(sorted(globals()), sys.modules['__main__'].__dict__ is globals())\n"
    ),
    "exit code": "import sys\nsys.exit(7)\n",
    "exit message": "raise SystemExit('finished early')\n",
    "error": "def fail():\n    return 1 / 0\n\n\nfail()\n",
    "chained error": (
        "try:\n    {}['key']\nexcept KeyError as error:\n    raise ValueError('bad') from error\n"
    ),
    "syntax error": "print('never printed')\ndef (:\n",
    "exception hook": (
        "import sys, traceback\n"
        "sys.excepthook = lambda *error: print(*traceback.format_exception(*error))\n"
        "raise ValueError('for the hook')\n"
    ),
    "interrupt": "raise KeyboardInterrupt\n",
    "at exit": "import atexit\natexit.register(lambda: print('exit', __name__))\n1 / 0\n",
    "thread": (
        "import threading, time\n"
        "def work():\n    threading.main_thread().join()\n"
        "    print('end', __name__, time.__name__)\n"
        "threading.Thread(target=work).start()\n"
    ),
    "pickle": (
        "import pickle\nclass Point:\n    x = 1\n\n\nprint(pickle.loads(pickle.dumps(Point())).x)\n"
    ),
    "encoding": "# -*- coding: latin-1 -*-\nprint(ascii('é'))\n",
    "input": "print(input('Name: '))\n",
    "future": "x: int = 1\nprint(__annotations__)\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_behaves_as_in_python(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "other.py").write_text("value = 'beside the script'\n")
    (folder / "script.py").write_bytes(SCRIPTS[name].encode("latin-1"))
    command = ("scripts/script.py", "first", "-m", "--help")
    theirs = run_python(tmp_path, *command, given="Ada\n")
    ours = run_python(tmp_path, *LAUNCHER, *command, given="Ada\n")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert ours.stderr == theirs.stderr


def test_a_missing_script_is_reported_as_python_does(tmp_path: Path) -> None:
    theirs = run_python(tmp_path, "gone.py")
    ours = run_python(tmp_path, *LAUNCHER, "gone.py")
    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)


def test_a_module_runs(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import autogen_core, sys\nprint(__name__, sys.argv[1:], autogen_core.__version__)\n1 / 0\n"
    )
    done = run_python(tmp_path, *LAUNCHER, "-m", "tool", "x")
    assert (done.returncode, done.stdout) == (1, "__main__ ['x'] 0.7.5\n")
    trace = done.stderr.splitlines()
    assert [trace[0], trace[-1]] == [
        "Traceback (most recent call last):",
        "ZeroDivisionError: division by zero",
    ]
    assert "tool.py" in trace[1]


def test_usage_is_printed_without_a_script(tmp_path: Path) -> None:
    done = run_python(tmp_path, *LAUNCHER)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m cellblock.compat SCRIPT")
    shown = run_python(tmp_path, *LAUNCHER, "--help")
    assert (shown.returncode, shown.stdout) == (0, done.stderr)


# AutoGen 0.2

CHAT = """
import sys
import autogen
from autogen.coding import LocalCommandLineCodeExecutor

ANSWERS = ["Run this:\\n```sh\\necho $((233 + 144))\\n```", "It is 377. TERMINATE"]


def answer(recipient, messages, sender, config):
    return True, ANSWERS.pop(0)


coder = autogen.ConversableAgent("coder", human_input_mode="NEVER", llm_config=False)
coder.register_reply(autogen.Agent, answer)
user = autogen.UserProxyAgent(
    "user",
    is_termination_msg=lambda message: "TERMINATE" in message["content"],
    code_execution_config={"executor": LocalCommandLineCodeExecutor(work_dir=sys.argv[1])},
)
result = user.initiate_chat(coder, message="What is the 14th Fibonacci number?")
print(result.chat_history, result.summary, result.human_input)
"""


@pytest.mark.slow
@pytest.mark.autogen
@pytest.mark.network
@pytest.mark.timeout(300)
@pytest.mark.parametrize("given", ["Be quick.\n\nexit\n", ""])
def test_a_chat_prints_what_it_prints_with_autogen(
    tmp_path: Path, autogen_02_python: Path, given: str
) -> None:
    (tmp_path / "old.py").write_text(CHAT)
    (tmp_path / "coding").mkdir()
    theirs = run_python(
        tmp_path, "-W", "ignore", "old.py", "coding", given=given, python=autogen_02_python
    )
    ours = run_python(tmp_path, *LAUNCHER, "old.py", "coding", given=given)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert ("EOFError" in ours.stderr) == ("EOFError" in theirs.stderr) == (given == "")


def test_a_notebook_is_refused_with_the_way_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "old.ipynb").write_text("{}")
    done = run_python(tmp_path, *LAUNCHER, "old.ipynb")
    assert done.returncode == 2
    assert "`import cellblock.compat` into its first cell" in done.stderr
