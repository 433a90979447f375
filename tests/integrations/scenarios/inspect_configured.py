"""A sample of a task of Inspect with the configuration that is the argument, as JSON."""

import asyncio
import shlex
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.solver import solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from inspect_ai.util._sandbox.context import sandbox_connections

from cellblock.integrations.inspect_ai import CellblockConfig, CellblockEnvironment


async def connect():
    """Print what a command in each sandbox prints, through the connection of the sandbox."""
    for name, connection in (await sandbox_connections()).items():
        process = await asyncio.create_subprocess_exec(
            *shlex.split(connection.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate(b"echo $A; pwd\n")
        print(name, connection.type, printed.split())


@solver
def read_file_twice():
    async def solve(state, generate):
        done = await sandbox().exec(["sh", "-c", "cat numbers numbers > twice"])
        print(done.returncode, done.stderr, (await sandbox().read_file("twice")).split())
        print(sandbox().as_type(CellblockEnvironment).sandbox)
        print((await sandbox().exec(["cat", "/etc/own"])).stdout.strip())
        for name in config.sandboxes:
            done = await sandbox(name).exec(["sh", "-c", "pwd; ulimit -n; echo $A; cat given/*"])
            print(name, done.stdout.split(), sandbox(name).as_type(CellblockEnvironment).sandbox)
        await connect()
        return state

    return solve


config = CellblockConfig.model_validate_json(sys.argv[1])
[log] = eval(
    Task(
        dataset=[Sample("Read.", files={"numbers": "6\n7\n"})],
        solver=read_file_twice(),
        sandbox=SandboxEnvironmentSpec("cellblock", config),
    ),
    model="mockllm/model",
    display="none",
)
print(log.status, log.error and log.error.message)
print(read_eval_log(log.location).eval.sandbox.config == config)
