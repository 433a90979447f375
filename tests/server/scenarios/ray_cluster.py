"""A Ray cluster on loopback that does what its input asks for, a line each.

Answers each line with one of JSON, after a first one: the address and the IDs of two nodes.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import ray

from cellblock.server.cluster.reservations import reserve
from cellblock.server.refusals import TooManySessions

sys.path.append(str(Path(__file__).parents[3]))
from tests.ray_cluster import LoopbackCluster

RAY = str(Path(sys.executable).with_name("ray"))


def drain(address: str, node_id: str) -> int:
    argv = [RAY, "drain-node", "--address", address, "--node-id", node_id]
    argv += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "maintenance"]
    return subprocess.run([*argv, "--deadline-remaining-seconds", "3600"]).returncode


def reserve_too_much(address: str) -> str:
    ray.init(address, log_to_driver=False)
    try:
        asyncio.run(reserve(ray, {"CPU": 3}, wait_seconds=1))
    except TooManySessions as error:
        return str(error)
    finally:
        ray.shutdown()
    return ""


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


cluster = LoopbackCluster()
answer([cluster.address, cluster.add_node(), cluster.add_node()])
for line in sys.stdin:
    match line.split():
        case ["add"]:
            answer(cluster.add_node())
        case ["kill", node_id]:
            answer(cluster.kill_node(node_id))
        case ["drain", node_id]:
            answer(drain(cluster.address, node_id))
        case _:
            answer(reserve_too_much(cluster.address))
cluster.stop()
