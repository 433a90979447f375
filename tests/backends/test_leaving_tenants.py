"""A tenant of a shared server leaves while the server waits for its zygote."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from tests.backends.test_shared_server import (
    own_settings,
    run,
    server_of,
    tenant,
    wait_until,
    zygote_of,
)


def open_files(process: int) -> dict[str, str]:
    """Return the target of each descriptor of `process`."""
    found = dict[str, str]()
    for name in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/{process}/fd/{name}")
    return found


async def until_it_requests_a_zygote(server: int, before: dict[str, str]) -> None:
    """Wait until a new tenant has its stream, twice, and a socket for its zygote; no mounts."""

    def has_requested() -> bool:
        now = open_files(server)  # the numbers of closed descriptors are used again
        new = [target for name, target in now.items() if before.get(name) != target]
        sockets = [target for target in new if target.startswith("socket:")]
        return 2 <= len(set(sockets)) < len(sockets) and "/" not in new

    await wait_until("no zygote is requested", has_requested)


async def test_tenant_that_left_before_its_zygote_answered_does_not_disturb_the_next() -> None:
    settings = own_settings()
    async with tenant(**settings) as one:
        await run(one, "print(1)")
        server = server_of(one)
        zygote, leaving, starting = zygote_of(server), tenant(**settings), tenant(**settings)
        os.kill(zygote, signal.SIGSTOP)
        try:
            before = open_files(server)
            task = asyncio.ensure_future(leaving.start())
            await until_it_requests_a_zygote(server, before)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            before = open_files(server)
            task = asyncio.ensure_future(starting.start())  # on the same descriptors
            await until_it_requests_a_zygote(server, before)
        finally:
            os.kill(zygote, signal.SIGCONT)
        await task
        assert (await run(starting, "print(2)")).output == "2\n"
        await starting.stop()
