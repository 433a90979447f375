"""The process that forks branches, as the server sees it."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from cellblock.runtime.messages import OrderResult
from cellblock.runtime.packets import encode_packet
from cellblock.runtime.server.sessions import fork_helper
from tests.runtime.server.sessions.test_checkpoints import SelectLoop


def test_a_helper_whose_process_cannot_be_looked_up_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pid: int) -> None:
        raise OSError(errno.ENOMEM, f"/proc/{pid}/stat")

    monkeypatch.setattr(fork_helper, "KnownProcess", fail)
    loop = SelectLoop()
    helper = fork_helper.ForkHelper(loop, print, print)
    with socket.socket(fileno=os.dup(helper.peer_fd)) as process:
        helper.close_peer()
        process.send(encode_packet(OrderResult()))
        with pytest.raises(OSError, match="stat"):
            loop.run_until(lambda: helper.is_ready, "it does not read")
        process.setblocking(False)
        helper.kill()
        assert process.recv(1) == b""  # its end: the helper waits for orders no longer
