"""The start of the runtime server: fork into a process that becomes the zygote, and the server.

Little is imported before the fork, so that the sandbox is built while the server is still loading.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Callable

from . import protocol
from .handshake import CellJob
from .linux import syscalls
from .linux.credentials import enable_credentials
from .messages import Failure
from .packets import decode_packet, encode_packet
from .spec import SandboxSpec, ServerSpec

LaunchSandbox = Callable[[SandboxSpec, socket.socket, socket.socket], None]


def main(launch_sandbox: LaunchSandbox | None) -> CellJob:
    """Serve standard input and output. Return only in a cell's main process, with its job.

    `launch_sandbox` is called in a new process, with the specification of the sandbox, the zygote's
    socket and the mount broker's. It builds the sandbox and starts a zygote in it. If it is None,
    the zygote is a fork.
    """
    # A caller under nohup ignores the first signal, but blocks must end by it. A caller may ignore
    # the second one, but the server waits for its children. A caller may block signals, as workers
    # of Ray block SIGINT, which interrupts blocks of a session.
    for number in (signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    control_in, control_out = _move_control_stream()
    decoder = protocol.Decoder()
    frames: list[protocol.Frame] = []
    while not frames:
        data = os.read(control_in, 1 << 16)
        if not data:
            os._exit(0)
        frames = [*decoder.feed(data)]
    spec = decode_packet(frames.pop(0).payload, ServerSpec)
    to_zygote, from_server = socket.socketpair()
    enable_credentials(to_zygote)
    listener = None if spec.listener is None else socket.socket(fileno=spec.listener)
    # Only a sandbox has a mount broker.
    to_broker, broker = (
        socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if launch_sandbox else (None, None)
    )
    # The zygote becomes a child of the server when its launcher ends. A kernel without subreapers
    # (gVisor's, for years) could not hold the processes of a cell together: there, each cell has a
    # process namespace, as in the sandbox.
    is_subreaper = syscalls.become_subreaper()
    own_processes = spec.zygote.namespaces or not is_subreaper
    spec = spec._replace(zygote=spec.zygote._replace(own_processes=own_processes))
    launcher = os.fork()
    if launcher == 0:
        to_zygote.close()
        os.close(control_in)
        os.close(control_out)
        for one in (to_broker, listener):
            if one:
                one.close()
        return _start_zygote(launch_sandbox, spec, from_server, broker)
    from_server.close()
    if broker:
        broker.close()
    # Each session needs eight descriptors, and each cell ten.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from .server.server import Server  # not before the fork, see above

    server = Server(control_in, control_out, to_zygote, to_broker, listener, spec, decoder)
    server.run(launcher if launch_sandbox else 0, frames)
    os._exit(0)


def _move_control_stream() -> tuple[int, int]:
    """Move the control stream from descriptors 0 and 1, where a stray print could write to it."""
    moved = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return moved


def _start_zygote(
    launch_sandbox: LaunchSandbox | None,
    spec: ServerSpec,
    server: socket.socket,
    broker: socket.socket | None,
) -> CellJob:
    try:
        if launch_sandbox is None:
            from .cell import zygote  # a sandbox's zygote is a separate program

            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            return zygote.serve(server, spec.zygote)
        assert broker is not None
        assert spec.sandbox is not None
        launch_sandbox(spec.sandbox, server, broker)
    except BaseException as error:
        server.sendall(encode_packet(Failure(f"{type(error).__name__}: {error}")))
    os._exit(1)
