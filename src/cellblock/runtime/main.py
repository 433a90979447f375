"""The start of a cell server: two processes that go separate ways, one to become the zygote and one to serve.

Little is imported before they part, so that the sandbox is built while the server is still loading.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any

from . import protocol
from .linux import syscalls
from .linux.credentials import ask_for_sender

Enclose = Callable[[dict[str, Any], socket.socket, socket.socket], None]


def main(enclose: Enclose | None) -> dict[str, Any]:
    """Serve standard input and output. Returns in a cell's main process alone, with its job.

    `enclose` is called in a fresh process, to build the sandbox and start a zygote in it; without it the zygote is a fork.
    """
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # a caller under nohup ignores it; a block is to end by it all the same
    control_in, control_out = _take_control()
    decoder = protocol.Decoder()
    frames: list[protocol.Frame] = []
    while not frames:
        data = os.read(control_in, 1 << 16)
        if not data:
            os._exit(0)
        frames = [*decoder.feed(data)]
    spec = frames.pop(0).json()
    ours, theirs = socket.socketpair()
    ask_for_sender(ours)
    door = socket.socket(fileno=spec["door"]) if "door" in spec else None
    # Only where there are walls is anything handed in through them.
    to_porter, porter = (
        socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if enclose else (None, None)
    )
    # The zygote becomes our child when its launcher ends. A kernel that cannot do that (gVisor's, for years) could not keep
    # together what belongs to a plain cell either: there each has a process namespace, as in the sandbox.
    can_adopt = syscalls.adopt_orphans()
    spec["zygote"]["own_processes"] = spec["zygote"]["namespaces"] or not can_adopt
    launcher = os.fork()
    if launcher == 0:
        ours.close()
        os.close(control_in)
        os.close(control_out)
        for one in (to_porter, door):
            if one:
                one.close()
        return _start_zygote(enclose, spec, theirs, porter)
    theirs.close()
    if porter:
        porter.close()
    if door:  # some ten descriptors for each cell of each guest
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from .server.server import Server  # only now: see above

    Server(control_in, control_out, ours, to_porter, door, spec, decoder).run(
        launcher if enclose else 0, frames
    )
    os._exit(0)


def _take_control() -> tuple[int, int]:
    """Move the control stream away from descriptors 0 and 1, where a stray print would write into it."""
    moved = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return moved


def _start_zygote(
    enclose: Enclose | None, spec: dict[str, Any], link: socket.socket, porter: socket.socket | None
) -> dict[str, Any]:
    try:
        if enclose is None:
            from .cell import (
                zygote,  # where there are no walls; else a program of its own imports it, behind them
            )

            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            return zygote.serve(link, spec["zygote"])
        assert porter is not None
        enclose(spec, link, porter)
    except BaseException as error:
        link.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    os._exit(1)
