"""Use an environment of ADK as it does, and run code in it; print what comes back."""

import asyncio
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File  # noqa: E402

from cellblock import BoxGone, Sandbox  # noqa: E402
from cellblock.integrations.google_adk import (  # noqa: E402
    CellblockAdkCodeExecutor,
    CellblockAdkEnvironment,
)

CODE = (
    "import sys\nprint(open('in.csv').read(), file=sys.stderr)\nx = 6\nopen('o.png', 'w').close()"
)


async def main():
    environment = CellblockAdkEnvironment(Sandbox())
    await environment.initialize()
    print(environment.working_dir, await environment.execute("echo out; echo err >&2; exit 3"))
    print(await environment.execute("echo partial; sleep 100", timeout=2))
    await environment.write_file(Path("a/b"), "text")
    print(await environment.read_file(Path("a/b")))
    try:
        await environment.read_file(Path("none"))
    except FileNotFoundError as error:
        print(error)
    executor = CellblockAdkCodeExecutor(sandbox=environment.sandbox)
    done = executor.execute_code(None, CodeExecutionInput(CODE, [File("in.csv", "MSwy")]))
    print(repr(done.stdout), repr(done.stderr), done.exit_code, done.output_files)
    failed = executor.execute_code(None, CodeExecutionInput("print(x)\nx / 0"))
    print(failed.exit_code, failed.stdout, failed.stderr.splitlines()[-1])
    await environment.close()
    await environment.close()
    try:
        await environment.execute("true")
    except BoxGone as error:
        print(type(error).__name__)


asyncio.run(main())
