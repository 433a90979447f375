"""Reservation: resources of a node that Ray has chosen, for as long as an executor lives.

A reservation is a placement group of one bundle: Ray queues it, chooses the node, tells its
autoscaler, and passes over nodes that are drained. See
https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from ...aio.shielded import run_to_end
from ...errors import BackendError
from ..refusals import TooManySessions

_WAIT_SECONDS = 120.0  # in which an autoscaler may add a node


class Reservation:
    """What is reserved on the node `node_id`."""

    def __init__(self, ray: Any, resources: Mapping[str, float], group: Any, node_id: str) -> None:
        self.node_id = node_id
        self._ray, self._resources, self._group = ray, resources, group

    async def on_same_node(self) -> Reservation:
        """Reserve as much on the same node. Raise as `reserve` does."""
        return await reserve(self._ray, self._resources, self.node_id)

    def cancel(self) -> None:
        """Return the resources to Ray."""
        _remove(self._ray, self._group)


def _remove(ray: Any, group: Any) -> None:
    """Remove a placement group, in a thread: Ray waits for an answer."""

    def remove() -> None:
        with contextlib.suppress(Exception):  # Ray removes it when the server has ended
            ray.util.remove_placement_group(group)

    asyncio.get_running_loop().run_in_executor(None, remove)


async def reserve(
    ray: Any,
    resources: Mapping[str, float],
    node_id: str | None = None,
    wait_seconds: float = _WAIT_SECONDS,
) -> Reservation:
    """Let Ray reserve resources on a node: any, or the one with this ID.

    Raise `TooManySessions` if no node has them in time, and `BackendError` if Ray fails.
    """
    labels = None if node_id is None else [{"ray.io/node-id": node_id}]
    make = partial(ray.util.placement_group, bundle_label_selector=labels)
    group = await run_to_end(asyncio.to_thread(make, [dict(resources)]))
    try:
        async with asyncio.timeout(wait_seconds):
            await group.ready()
        table = await asyncio.to_thread(ray.util.placement_group_table, group)
        return Reservation(ray, resources, group, table["bundles_to_node_id"][0])
    except BaseException as error:
        _remove(ray, group)
        if isinstance(error, TimeoutError):
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
            raise TooManySessions(
                f"No node of the cluster has {wanted} free. End a session, or send the request "
                "again later."
            ) from error
        if isinstance(error, ray.exceptions.RayError):
            raise BackendError(f"Ray cannot place a session: {error}") from error
        raise
