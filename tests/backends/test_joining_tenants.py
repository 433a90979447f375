"""A shared server ends while an executor joins it."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from cellblock.backends.shared_server import TenantServer
from tests.backends.test_shared_server import run, server_of, two_tenants


async def test_a_server_that_ends_while_an_executor_joins_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_stream = TenantServer._open_stream
    killed = list[int]()

    def end_and_open_stream(server: TenantServer) -> socket.socket:
        if not killed:
            killed.append(server._require_connection().pid)
            os.kill(killed[0], signal.SIGKILL)
            os.waitid(os.P_PID, killed[0], os.WEXITED | os.WNOWAIT)
        return open_stream(server)

    async with two_tenants() as (one, other):
        await other.stop()
        monkeypatch.setattr(TenantServer, "_open_stream", end_and_open_stream)
        assert (await run(other, "print(1)")).output == "1\n"
        assert killed == [server_of(one)] != [server_of(other)]
