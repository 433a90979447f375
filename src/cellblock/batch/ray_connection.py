"""Connect to a Ray cluster. See https://docs.ray.io/en/latest/ray-core/api/doc/ray.init.html."""

from __future__ import annotations

import asyncio
import importlib
import os
from typing import Any

from ..errors import BackendError

_CONNECT_SECONDS = 30.0


def import_ray(user: str) -> Any:
    """Return the module. Raise `ModuleNotFoundError` that names the extra, which `user` needs."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            f"{user} needs Ray: pip install 'cellblock[ray]', on all nodes.", name="ray"
        ) from None


async def connect(ray: Any, address: str) -> bool:
    """Connect this process to a cluster, and return whether it was not connected before.

    address   "auto", or one of `ray.init`, such as "ray-head:6379"

    Raise `BackendError` if the cluster cannot be reached.
    """
    if ray.is_initialized():
        return False
    try:
        await _check_port(address)
        await asyncio.to_thread(ray.init, address, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        raise BackendError(
            f"No Ray cluster can be reached at {address!r}: {error}. "
            "Start one with `ray start --head`."
        ) from error
    return True


def obstacle_to_network() -> str:
    """Return why code may not use the network of a node of the cluster; "" if it may.

    See https://docs.ray.io/en/latest/ray-security/token-auth.html.
    """
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return ""
    return (
        "Code with access to the network could run programs on all nodes, because the cluster "
        "accepts everybody. Start Ray and this program with RAY_AUTH_MODE=token."
    )


async def _check_port(address: str) -> None:
    """Raise `OSError` if nothing listens there: `ray.init` would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
