"""Judge programs on a Ray cluster of three nodes on loopback, and kill one in the middle.

The programs are the lines of a file, as `cellblock batch` reads them. Prints a JSON object: what
became of them, by the name of the run.
"""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
from pathlib import Path

import ray

from cellblock.batch import JudgeLimits, Program, ray_pool, run_many
from cellblock.errors import BackendError
from cellblock.sync import run_many as run_many_sync

sys.path.append(str(Path(__file__).parents[3]))
from tests.ray_cluster import LoopbackCluster

LIMITS = JudgeLimits(cpu_seconds=20, wall_seconds=600)
PROGRAMS = [Program.from_json(line) for line in open(sys.argv[1])]
COUNT = len(PROGRAMS)
FOUND = {}


def record(name, verdicts):
    FOUND[name] = [[each.id, each.outcome] for each in verdicts]


async def run_with_a_lost_node(cluster, node):
    verdicts = []
    async for verdict in run_many(PROGRAMS, limits=LIMITS, cluster=cluster.address):
        verdicts.append(verdict)
        if len(verdicts) == COUNT // 4:
            cluster.kill_node(node)
    record("with a lost node", verdicts)


async def stop_early(address):
    verdicts = run_many(PROGRAMS, limits=LIMITS, cluster=address, journal="journal", ordered=False)
    async with contextlib.aclosing(verdicts):
        async for _ in verdicts:
            if len(open("journal").readlines()) >= COUNT // 4:
                break
    FOUND["is connected"] = ray.is_initialized()


def say_what_is_waited_for(address):
    """A session holds a part of the only CPU until the note has come."""
    ray.init(address, log_to_driver=False)
    group = ray.util.placement_group([{"CPU": 0.5}])
    ray.get(group.ready())
    notes, handler = [], logging.Handler()

    def emit(note):
        notes.append(note.getMessage())
        ray.util.remove_placement_group(group)

    handler.emit = emit
    logging.getLogger("cellblock.batch").addHandler(handler)
    ray_pool._SILENT_SECONDS = 1.0
    (verdict,) = run_many_sync([Program(id="1", code="")], limits=LIMITS, cluster=address)
    FOUND["waited"] = [notes[0], verdict.outcome]
    ray.shutdown()


record("on this machine", run_many_sync(PROGRAMS, limits=LIMITS))
try:
    list(run_many_sync(PROGRAMS, cluster="127.0.0.1:1"))
except BackendError as error:
    FOUND["no cluster"] = str(error)
cluster = LoopbackCluster()
nodes = [cluster.add_node() for _ in range(2)]
asyncio.run(run_with_a_lost_node(cluster, nodes[1]))
asyncio.run(stop_early(cluster.address))
argv = [sys.executable, "-m", "cellblock.cli", "batch", sys.argv[1], "-o", "journal"]
argv += ["--cpu-seconds", "20", "--wall-seconds", "600", "--ray", cluster.address]
done = subprocess.run(argv, capture_output=True, text=True)
FOUND["command"] = [done.returncode, done.stderr]
record("resumed by the command", run_many_sync(PROGRAMS, limits=LIMITS, journal="journal"))
say_what_is_waited_for(cluster.address)
cluster.stop()
print(json.dumps(FOUND))
