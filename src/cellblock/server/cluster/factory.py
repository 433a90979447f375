"""ClusterSessions: sessions and programs on the nodes of a Ray cluster.

Ray places each one, by what it reserves. On each node there is one actor, which makes and keeps
what was placed there, as a server of this machine would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ...aio.shielded import run_to_end
from ...batch.ray_connection import connect, import_ray, obstacle_to_network
from ...errors import BackendError, BackendLost
from ..owners import ANONYMOUS, Owner
from ..refusals import PolicyNotSupported, TooManySessions
from ..sessions.executors import ServedExecutor, SessionFactory
from ..settings import ServedSettings
from .node import Node
from .node_executor import NodeExecutor
from .node_executors import Kind, NodeExecutors
from .reservations import Reservation, reserve

SESSION_RESOURCES: Mapping[str, float] = {"CPU": 0.1}
_ATTEMPTS = 3  # to find a node that is not lost meanwhile
_STOP_SECONDS = 20.0
_MAX_CALLS = 100_000  # of one actor at a time: each run waits for its next item


class ClusterSessions(SessionFactory):
    """See `SessionFactory`. Entering connects to the cluster, and makes one node ready.

    address     "auto", or an address of `ray.init`
    resources   of a node that each session and program reserves, by the names that Ray has
    """

    def __init__(
        self, settings: ServedSettings, address: str, resources: Mapping[str, float]
    ) -> None:
        """Raise `ModuleNotFoundError` without the extra `ray`."""
        self._ray: Any = import_ray("--ray")
        self._settings, self._address = settings, address
        self._resources, self.program_places = resources, 1
        self._nodes = dict[str, Node]()
        self._starting = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._must_disconnect = False

    async def __aenter__(self) -> ClusterSessions:
        """Raise `BackendError` if the cluster cannot be reached, or its nodes have no sandbox.

        Also if all code has the network, by which it could get at the cluster.
        """
        self._must_disconnect = await connect(self._ray, self._address)
        self.program_places = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        try:
            self._check_network(ANONYMOUS)
            with contextlib.suppress(TooManySessions):  # it may grow
                executor = await self.make(ANONYMOUS)
                await self.release(executor, is_idle=True)
        except BaseException as error:
            await self.__aexit__()
            if isinstance(error, PolicyNotSupported):
                raise BackendError(str(error)) from error
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.gather(*map(self._stop, self._nodes.values()))
        if self._must_disconnect:
            await asyncio.to_thread(self._ray.shutdown)

    async def _stop(self, node: Node) -> None:
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await node.ask("stop")
        self._ray.kill(node.actor)

    async def make(self, owner: Owner) -> NodeExecutor:
        """See `SessionFactory`."""
        return await self._make(owner, "session")

    async def make_program(self, owner: Owner) -> NodeExecutor:
        """See `SessionFactory`."""
        return await self._make(owner, "program")

    async def release(self, executor: ServedExecutor, *, is_idle: bool) -> None:
        """See `SessionFactory`."""
        await on_node(executor).release(is_idle=is_idle)

    async def disk_bytes(self, executors: Sequence[ServedExecutor]) -> int:
        """See `SessionFactory`. Those on lost nodes have nothing any more."""
        by_node = defaultdict[Node, list[str]](list)
        for each in map(on_node, executors):
            by_node[each.node].append(each.id)
        found = [_disk_bytes(node, ids) for node, ids in by_node.items()]
        return sum(await asyncio.gather(*found))

    async def _make(self, owner: Owner, kind: Kind) -> NodeExecutor:
        self._check_network(owner)
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(BackendLost):
                return await self._make_once(owner, kind)
        return await self._make_once(owner, kind)

    async def _make_once(self, owner: Owner, kind: Kind) -> NodeExecutor:
        reservation = await reserve(self._ray, self._resources)
        try:
            node = await self._node_of(reservation)
        except BaseException:
            reservation.cancel()
            raise
        executor = NodeExecutor(node, reservation, is_live=kind == "session")
        try:
            await run_to_end(node.ask("make", executor.id, owner, kind))
        except BaseException:
            await run_to_end(executor.release(is_idle=False))
            raise
        return executor

    async def _node_of(self, reservation: Reservation) -> Node:
        """Return the node of a reservation, whose actor is started first if there is none."""
        node_id = reservation.node_id
        async with self._starting[node_id]:
            node = self._nodes.get(node_id)
            if node is None or node.is_lost:
                node = await asyncio.to_thread(self._start_actor, node_id)
                try:
                    await node.ask("start")
                except BaseException:
                    self._ray.kill(node.actor)
                    raise
                self._nodes[node_id] = node
            return node

    def _start_actor(self, node_id: str) -> Node:
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        options = {
            "num_cpus": 0,
            "max_concurrency": _MAX_CALLS,
            "scheduling_strategy": strategy(node_id, soft=False),
        }
        actor = self._ray.remote(**options)(NodeExecutors).remote(self._settings)
        addresses = {each["NodeID"]: each["NodeManagerAddress"] for each in self._ray.nodes()}
        return Node(self._ray, addresses.get(node_id, node_id), actor)

    def _check_network(self, owner: Owner) -> None:
        """Raise `PolicyNotSupported` if code could use the network to get at the cluster."""
        policy = owner.overrides.apply_to(self._settings).policy
        if policy.network == "host" and (obstacle := obstacle_to_network()):
            raise PolicyNotSupported(obstacle)


def on_node(executor: ServedExecutor) -> NodeExecutor:
    """Return an executor, which must be one of another node."""
    assert isinstance(executor, NodeExecutor)
    return executor


async def _disk_bytes(node: Node, executor_ids: list[str]) -> int:
    with contextlib.suppress(BackendLost):
        found: int = await node.ask("disk_bytes", executor_ids)
        return found
    return 0
