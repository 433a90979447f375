"""Stop what an adapter runs, or let it reach a time limit, and print as JSON what goes on then.

The arguments are the adapter, "cancel" or "limit", and a root file system for Harbor.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import warnings
from pathlib import Path

from cellblock import Sandbox, SandboxCommandLineCodeExecutor, sync

warnings.filterwarnings("ignore")
NAME, CASE, ROOT = sys.argv[1:]
FOLDER = Path("work").absolute()
MARK = f"mark-{os.getpid()}"
LOOP = f"sh -c 'while :; do echo x >> beats; sleep 0.02; done' {MARK}"
LONG = "touch begun; sleep 6; touch completed"
LONG_CODE = "import time\nopen('begun', 'w')\ntime.sleep(6)\nopen('completed', 'w')"
CODE = "while True:\n    tick(0)\n    _ = open('beats', 'a').write('x\\n')"
SECONDS = None if CASE == "cancel" else 1
CALLS = []


def tick(number: int) -> int:
    """Count the calls.

    Args:
        number: is returned
    """
    CALLS.append(number)
    return number


def beats():
    files = [*FOLDER.glob("beats")]
    return sum(file.stat().st_size for file in files)


def processes():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(MARK.encode() in path.read_bytes())
        except OSError:
            pass
    return sum(found)


async def report():
    """Print what goes on after a cancel that has returned."""
    running, size, calls = processes(), beats(), len(CALLS)
    await asyncio.sleep(0.5)  # in which functions can be called on this loop
    grown = {"bytes": beats() - size, "calls": len(CALLS) - calls}
    print(json.dumps({"processes": running, **grown}))


def report_limit():
    """Print how far a command came that takes longer than its time limit."""
    print(json.dumps({name: (FOLDER / name).exists() for name in ("begun", "completed")}))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def code_like(command):
    return LONG_CODE if command == LONG else CODE.replace("tick(0)", "pass")


def is_running():
    return beats() > 6 and (not CALLS or len(CALLS) > 3)


# what runs a command in a sandbox, by each asynchronous adapter


def box(sandbox):
    return sandbox.exec


def box_stream(sandbox):
    async def run(command):
        return [piece async for piece in sandbox.exec_stream(command)]

    return run


def box_shell(sandbox):
    return sandbox.shell().run


def box_code(sandbox):
    return lambda command: sandbox.run_code(code_like(command))


def ag2(sandbox):
    from ag2.tools.sandbox.adapter.shell import ShellAdapter

    from cellblock.integrations.ag2 import CellblockAg2Sandbox

    return ShellAdapter(CellblockAg2Sandbox(sandbox)).run


def agent_framework(sandbox):
    from cellblock.integrations.agent_framework import CellblockShellExecutor

    shell = CellblockShellExecutor(sandbox).as_function()
    return lambda command: shell.invoke(arguments={"command": command}, skip_parsing=True)


def autogen(sandbox):
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    from cellblock.integrations.autogen import AutoGenCodeExecutor

    limit = {} if SECONDS is None else {"timeout": SECONDS}
    ours = AutoGenCodeExecutor(SandboxCommandLineCodeExecutor(work_dir=FOLDER, **limit))
    return lambda command: ours.execute_code_blocks(
        [CodeBlock(code=command, language="sh")], CancellationToken()
    )


def deepagents(sandbox):
    from cellblock.integrations.deepagents import CellblockBackend

    return CellblockBackend(sandbox).aexecute


def google_adk(sandbox):
    from cellblock.integrations.google_adk import CellblockAdkEnvironment

    return CellblockAdkEnvironment(sandbox).execute


def google_adk_code(sandbox):
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai.types import Content, Part

    from cellblock.integrations.google_adk import CellblockAdkCodeExecutor

    class ScriptedModel(BaseLlm):
        parts: list[Part]

        async def generate_content_async(self, request, stream=False):
            yield LlmResponse(content=Content(role="model", parts=[self.parts.pop(0)]))

    async def run(command):
        parts = [Part(text=f"```python\n{code_like(command)}\n```"), Part(text="Done.")]
        model = ScriptedModel(model="scripted", parts=parts)
        executor = CellblockAdkCodeExecutor(sandbox=sandbox)
        agent = LlmAgent(name="coder", model=model, code_executor=executor)
        return str(await InMemoryRunner(agent, app_name="example").run_debug("Go.", quiet=True))

    return run


def managed_agents(sandbox):
    from cellblock.integrations.anthropic_worker import sandbox_tools

    [bash] = [each for each in sandbox_tools(sandbox) if each.name == "bash"]
    return lambda command: bash.call({"command": command})


def openai_agents(sandbox):
    from cellblock.integrations.openai_agents import CellblockSandboxClient

    async def run(command):
        client = CellblockSandboxClient(lambda: sandbox)
        return await (await client.create()).exec(command)

    return run


def openai_agents_shell(sandbox):
    from agents import ShellCommandRequest
    from agents.tool import ShellActionRequest, ShellCallData

    from cellblock.integrations.openai_agents import shell_executor

    return lambda command: shell_executor(sandbox)(
        ShellCommandRequest(None, ShellCallData("call", ShellActionRequest([command, command])))
    )


def pydantic_ai(sandbox):
    from cellblock.integrations.pydantic_ai import CellblockWorkspace

    return lambda command: CellblockWorkspace(sandbox).run(command, shell=True)


def strands(sandbox):
    from cellblock.integrations.strands import CellblockStrandsSandbox

    return CellblockStrandsSandbox(sandbox).execute


async def inspect(_):
    from cellblock.integrations.inspect_ai import CellblockEnvironment

    made = (await CellblockEnvironment.sample_init("task", None, {}))["default"]
    return made, lambda command: made.exec(["sh", "-c", command])


async def harbor(_):
    from harbor.models.task.config import EnvironmentConfig
    from harbor.models.trial.paths import TrialPaths

    from cellblock.integrations.harbor import CellblockTaskEnvironment

    config = EnvironmentConfig()
    paths = TrialPaths(Path("trial").absolute())
    given = (Path(), "name", "id", paths, config)
    made = CellblockTaskEnvironment(*given, root=ROOT, enable_environment_dir_upload=False)
    await made.start(force_build=False)
    return made, made.exec


async def use_command(make):
    global FOLDER
    if make in (inspect, harbor):  # they make their sandboxes themselves
        made, run = await make(None)
        FOLDER = made.sandbox.work_dir
        sandbox = made.sandbox
    else:
        FOLDER.mkdir()
        kind = sync.Sandbox if make is deepagents else Sandbox
        sandbox = kind(SECONDS, FOLDER)
        run = make(sandbox)
    if CASE == "limit":
        with contextlib.suppress(Exception):  # some raise at the limit
            await run(LONG)
        report_limit()
    else:
        task = asyncio.ensure_future(run(LOOP))
        await until(is_running)
        task.cancel()
        await asyncio.wait([task])
        if make is google_adk_code:  # ADK leaves it to a thread, and does not wait for that
            await asyncio.get_running_loop().shutdown_default_executor()
        await report()
        assert task.cancelled(), task
    closing = sandbox.close()
    if closing is not None:
        await closing


# what runs code with functions of this process, and what has no `await`


async def agent_framework_code():
    from cellblock.integrations.agent_framework import CellblockCodeActProvider

    provider = CellblockCodeActProvider(tools=[tick], timeout=SECONDS or 60, work_dir=FOLDER)
    if CASE == "limit":
        await provider.execute_code(LONG_CODE)
        report_limit()
    else:
        task = asyncio.ensure_future(provider.execute_code(CODE))
        await until(is_running)
        task.cancel()
        await asyncio.wait([task])
        await report()
        assert task.cancelled(), task
        assert (await provider.execute_code("print(tick(2))")).strip() == "2"
    await provider.close()


def dspy():
    from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError

    from cellblock.integrations.dspy import CellblockInterpreter

    interpreter = CellblockInterpreter({"tick": tick}, timeout=SECONDS or 60, work_dir=FOLDER)
    if CASE == "limit":
        with contextlib.suppress(CodeExecutionError):
            interpreter.execute(LONG_CODE)
        report_limit()
    else:

        def execute():
            with contextlib.suppress(CodeInterpreterError):
                interpreter.execute(CODE)

        thread = threading.Thread(target=execute)
        thread.start()
        asyncio.run(until(is_running))
        interpreter.shutdown()
        asyncio.run(report())
        thread.join()
    interpreter.shutdown()


def smolagents():
    from smolagents import AgentError, ChatMessage, CodeAgent, MessageRole, Model
    from smolagents import tool as make_tool

    from cellblock.integrations.smolagents import CellblockPythonExecutor

    class Scripted(Model):
        def generate(self, messages, **options):
            code = (
                LONG_CODE if CASE == "limit" else CODE.replace("while True", "for _ in range(60)")
            )
            text = f"<code>\n{code}\n</code>"
            return ChatMessage(role=MessageRole.ASSISTANT, content=text)

    reached, may_return = threading.Event(), threading.Event()

    def hold(number: int) -> int:
        if tick(number) or len(CALLS) < 4:
            return number
        reached.set()
        may_return.wait()
        return number

    hold.__name__, hold.__doc__ = "tick", tick.__doc__
    errors = []

    def run():
        try:
            agent.run("Go.", max_steps=1)
        except AgentError as error:
            errors.append(str(error))

    function = make_tool(tick)
    function.forward = hold
    executor = CellblockPythonExecutor(timeout=SECONDS or 60, work_dir=FOLDER)
    with CodeAgent(
        [function], Scripted(model_id="scripted"), verbosity_level=-1, executor=executor
    ) as agent:
        thread = threading.Thread(target=run)
        thread.start()
        if CASE == "limit":
            thread.join()
            report_limit()
            return
        reached.wait()
        agent.interrupt()
        may_return.set()
        thread.join()
        asyncio.run(report())
        assert len(CALLS) == 4, len(CALLS)


def mini_swe_agent():
    from minisweagent.environments import get_environment

    kind = "cellblock.integrations.mini_swe_agent.CellblockBashEnvironment"
    environment = get_environment(
        {"environment_class": kind, "timeout": SECONDS or 60, "work_dir": str(FOLDER)}
    )
    if CASE == "limit":
        environment.execute({"command": LONG})
        report_limit()
    else:

        def interrupt():
            asyncio.run(until(is_running))
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            environment.execute({"command": LOOP})
        except KeyboardInterrupt:
            asyncio.run(report())
    environment.cleanup()


use = globals()[NAME.replace("-", "_")]
if use in (dspy, smolagents, mini_swe_agent, agent_framework_code):
    FOLDER.mkdir()
    done = use()
    if done is not None:
        asyncio.run(done)
else:
    asyncio.run(use_command(use))
