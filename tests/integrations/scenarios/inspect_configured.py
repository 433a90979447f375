"""A sample of a task of Inspect with the configuration that is the argument, as JSON."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.solver import solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from cellblock.integrations.inspect_ai import CellblockConfig, CellblockEnvironment


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
