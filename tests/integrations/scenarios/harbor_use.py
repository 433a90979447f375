"""Use an environment of Harbor as it does, and print what comes back."""

import asyncio
import sys
from pathlib import Path

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from cellblock import Limits
from cellblock.integrations.harbor import CellblockTaskEnvironment

FOLDER = Path(sys.argv[1])
TASK = EnvironmentConfig(cpus=1.5, memory_mb=300, storage_mb=40)
CLOSED = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


def environment(**options):
    paths = TrialPaths(FOLDER / "trial")
    given = {"network_policy": CLOSED, "task_env_config": TASK, "root": sys.argv[2], **options}
    return CellblockTaskEnvironment(FOLDER, "task", "session", paths, **given)


async def use_root():
    task = environment(limits={"open_files": 99})
    limits = task._make_box().session.limits
    print(limits.processors, limits.memory_bytes >> 20, limits.written_bytes >> 20)
    await task.start(force_build=False)
    (FOLDER / "file").write_text("given")
    await task.upload_file(FOLDER / "file", "/opt/given")
    for command, user in (
        ("echo $EUID $(ulimit -n); echo 10.9.8.7 mine >> /etc/hosts; cat /opt/given", None),
        ("echo $EUID; echo >> /etc/hosts || cat /opt/given", "1000"),
        ("x=x; while true; do x=$x$x; done", None),
        ("cat /etc/own; for ((i = 0; i < 99; i++)); do cp /bin/bash /opt/$i; done", None),
    ):
        done = await task.exec(command, user=user)
        print(done.stdout.split(), done.return_code)
    await task.stop(delete=True)


async def use_other_limits():
    task = environment(limits=Limits(memory_bytes=500 << 20), policy={"environment": {"A": "5"}})
    print(task._make_box().session.limits.memory_bytes >> 20)
    await task.start(force_build=False)
    print((await task.exec("echo $A")).stdout)
    await task.stop(delete=True)
    for wrong in ({"policy": {"network": "host"}}, {"imag": "x"}, {"limits": {"cpu": 1}}):
        try:
            environment(**wrong)
        except ValueError as error:
            print(str(error).partition(". See")[0])


asyncio.run(use_root())
asyncio.run(use_other_limits())
