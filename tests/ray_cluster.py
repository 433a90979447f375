"""Start a Ray cluster on loopback. Scenarios import this, in an environment that has Ray alone."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_OPTIONS = {"include_dashboard": False, "object_store_memory": 80 << 20}
_ATTEMPTS = 5  # Ray gives up a node whose first processes take 15 seconds, as on a busy machine


class LoopbackCluster:
    """A head without CPUs, and nodes of one CPU. `address` is for `ray.init`."""

    def __init__(self) -> None:
        os.environ["RAY_raylet_start_wait_time_s"] = "60"
        # It reads the variable when it is imported.
        cluster_class: Any = importlib.import_module("ray.cluster_utils").Cluster
        options = {"initialize_head": True, "head_node_args": {**_OPTIONS, "num_cpus": 0}}
        self._cluster: Any = _start(lambda: cluster_class(**options))
        self._nodes = dict[str, Any]()
        self.address: str = self._cluster.address

    def add_node(self) -> str:
        """Add a node, and return its ID."""
        node = _start(lambda: self._cluster.add_node(num_cpus=1, **_OPTIONS))
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def kill_node(self, node_id: str) -> None:
        """Kill all processes of a node."""
        self._cluster.remove_node(self._nodes.pop(node_id), allow_graceful=False)

    def stop(self) -> None:
        """Stop all nodes."""
        self._cluster.shutdown()


def _start(start: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS - 1):
        try:
            return start()
        except Exception as error:
            sys.stderr.write(f"Ray starts again after: {error}\n")
    return start()
