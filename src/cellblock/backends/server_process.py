"""The process of a runtime server on this machine, and our end of the stream to it.

Nothing here needs an event loop, so that a server can be started before one is imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ..errors import BackendError
from ..runtime import bootstrap

PACKAGE_DIR = Path(__file__).resolve().parent.parent


@functools.cache
def cloudpickle_dir() -> Path:
    """Return the folder of cloudpickle, which sessions save variables with.

    It goes along with the runtime because the Python that runs blocks may not have it.
    """
    spec = importlib.util.find_spec("cloudpickle")
    if spec is None or spec.origin is None:
        message = "cloudpickle, which Cellblock needs, is not installed: pip install cloudpickle"
        raise ModuleNotFoundError(message, name="cloudpickle")
    return Path(spec.origin).parent


class ServerProcess:
    """A runtime server that is a child process of this one.

    process   the process
    stream    our end of its standard input and output; the server ends with it
    stderr    a file with what it has written to its standard error: nothing reads a pipe while the
              server lives
    """

    def __init__(
        self,
        program: str,
        python: str | None = None,
        environment: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        """Start `program`, one of `runtime.bootstrap`. Raise `BackendError`.

        `environment` None means the environment of this process. The child inherits the
        descriptors `inherited`.
        """
        argv = [python or sys.executable, "-I", "-S", "-c", program, str(PACKAGE_DIR)]
        try:
            self.stream, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as opened:
                opened.enter_context(self.stream)
                self.stderr: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())
                # Not in a thread: a cancellation halfway would lose the process.
                self.process = subprocess.Popen(
                    argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self.stderr,
                    env=environment,
                    start_new_session=True,
                    cwd="/",
                    pass_fds=inherited,
                )
                opened.pop_all()  # they stay open
        except OSError as error:
            raise BackendError(
                f"The runtime server cannot be started with {argv[0]}: {error.strerror}."
            ) from error


class SandboxServerProcess(ServerProcess):
    """A runtime server that waits for its specification, which says how to build its sandbox.

    listener          our end of the socket over which it receives the streams of tenants; None
                      for a server of live sessions
    listener_number   the number of the descriptor that is the server's end
    """

    def __init__(self, *, has_tenants: bool = True) -> None:
        """Start the process. Raise `BackendError` or `OSError`."""
        self.listener: socket.socket | None = None
        self.listener_number: int | None = None
        if not has_tenants:
            super().__init__(bootstrap.SANDBOX_SERVER, environment={})
            return
        self.listener, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self.listener_number = theirs.fileno()
        with theirs, contextlib.ExitStack() as opened:
            opened.enter_context(self.listener)
            super().__init__(
                bootstrap.SANDBOX_SERVER, environment={}, inherited=(self.listener_number,)
            )
            opened.pop_all()

    def abandon(self) -> None:
        """End a server that has no specification yet."""
        self.process.kill()
        self.process.wait()
        self.stream.close()
        self.stderr.close()
        self.close_listener()

    def close_listener(self) -> None:
        """Close our end of the socket over which the server receives new streams."""
        if self.listener is not None:
            self.listener.close()
