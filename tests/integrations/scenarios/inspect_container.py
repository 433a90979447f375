"""A sample of a task of Inspect in a container of the image that is the argument."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from cellblock.integrations.inspect_ai import CellblockConfig, CellblockEnvironment

containers = []


@solver
def count_lines():
    async def solve(state, generate):
        containers.append(sandbox().as_type(CellblockEnvironment).sandbox.container)
        done = await sandbox().exec(["sh", "-c", "wc -l < numbers > count"])
        print(done.returncode, done.stderr, await sandbox().read_file("count"), end="")
        return state

    return solve


[log] = eval(
    Task(
        dataset=[Sample("Count.", files={"numbers": "6\n7\n"})],
        solver=count_lines(),
        sandbox=SandboxEnvironmentSpec("cellblock", CellblockConfig(image=sys.argv[1])),
    ),
    model="mockllm/model",
    display="none",
)
print(log.status, log.error and log.error.message)
print(*containers)
