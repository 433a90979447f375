"""LocalJupyterServer: a Jupyter server of our own on this machine, reachable from this machine alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ....backends.base import Connection
from ....backends.host import HostPlace
from ....errors import BackendError
from ....limits import LOCAL_LIMITS, Limits
from ....runtime import protocol
from ....runtime.linux.rmtree import remove_tree
from ..connection_info import JupyterConnectionInfo
from .base import OwnJupyterServer

_PATIENCE = 60.0  # seconds that it may take to start
_MISSING = "There is no jupyter_server here: pip install 'cellblock[jupyter]'."
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class LocalJupyterServer(OwnJupyterServer):
    """Run a Jupyter server on this machine's loopback, with a token, for as long as this object, or its process, wants it.

    ip         an address of the loopback
    port       None: any free one
    token      None: a new random one
    work_dir   the current folder of its kernels; `None`: the caller's, as it is at the start
    log_file   where its log is appended to; `None`: nowhere
    limits     how much it and all its kernels may use, together

    It starts on `with`, `async with`, `start()`, or when somebody asks for its `connection_info`. It runs as a cell: when it
    is stopped, or its owner dies, all that it and its kernels started ends as well. Its settings are its own: the files of
    the user for Jupyter servers are not read, those that describe kernels are.
    """

    def __init__(
        self,
        ip: str = "127.0.0.1",
        port: int | None = None,
        token: str | None = None,
        log_file: str | os.PathLike[str] | None = None,
        log_level: str = "INFO",
        *,
        work_dir: str | os.PathLike[str] | None = None,
        limits: Limits = LOCAL_LIMITS,
    ) -> None:
        super().__init__()
        if ip not in _LOOPBACK:
            raise ValueError(
                f"ip must be one of {', '.join(_LOOPBACK)}, not {ip!r}: others could reach it."
            )
        if token == "":
            raise ValueError(
                "token must not be empty: everybody on this machine could use the server."
            )
        self._ip, self._port, self._token = ip, port, token or secrets.token_hex(32)
        self._log_file = None if log_file is None else Path(log_file)
        self._log_level = log_level
        self._work_dir = None if work_dir is None else Path(work_dir)
        self._limits = limits
        self._folder: Path | None = None
        self._connection: Connection | None = None
        self._watching: asyncio.Task[None] | None = None
        self._said = b""

    # on the engine's loop

    def _runs(self) -> bool:
        return self._watching is not None and not self._watching.done()

    async def _launch(self) -> JupyterConnectionInfo:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="cellblock-jupyter-"))
        work_dir = str((self._work_dir or Path.cwd()).resolve())
        self._connection = await HostPlace(
            work_dir, self._limits, dict(os.environ), [str(folder)]
        ).open()
        # The token goes by the environment: arguments can be read by every user of this machine.
        environment = {
            "JUPYTER_TOKEN": self._token,
            "JUPYTER_RUNTIME_DIR": str(folder),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JPY_PARENT_PID": "0",
        }
        request = {"argv": self._argv(work_dir), "env": environment}
        self._said = b""
        self._watching = asyncio.create_task(self._watch(self._connection, request))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not self._watching.done():
                    # It says where it will listen a moment before it does.
                    if (port := _port_in(folder)) is not None and await _answers(self._ip, port):
                        return JupyterConnectionInfo(self._ip, False, port, self._token)
                    await asyncio.sleep(0.05)
        words = self._said.decode(errors="replace").replace(self._token, "***").strip()
        raise BackendError(
            f"The Jupyter server did not start. {_MISSING if 'No module named' in words else ''} It said: {words}"
        )

    def _argv(self, work_dir: str) -> list[str]:
        settings: Mapping[str, Any] = {
            "ServerApp.ip": self._ip,
            "ServerApp.port": self._port or 0,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": work_dir,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "ServerApp.terminals_enabled": False,
            "ServerApp.log_level": self._log_level,
            "KernelRestarter.time_to_dead": 1.0,
            # Else it would drop output beyond a megabyte a second.
            "ZMQChannelsWebsocketConnection.limit_rate": False,
        }
        return [
            sys.executable,
            "-m",
            "jupyter_server",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    async def _watch(self, connection: Connection, request: dict[str, Any]) -> None:
        async with contextlib.aclosing(connection.run(request)) as frames:
            async for frame in frames:
                if frame.kind in (protocol.STDOUT, protocol.STDERR):
                    self._said = (self._said + frame.payload)[-2000:]
                    self._log(frame.payload)

    def _log(self, data: bytes) -> None:
        if self._log_file is not None:
            with contextlib.suppress(OSError), open(self._log_file, "ab") as file:
                file.write(data.replace(self._token.encode(), b"***"))

    async def _end(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(remove_tree, str(folder))


async def _answers(ip: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(ip, port)
    except OSError:
        return False
    writer.close()
    return True


def _port_in(folder: Path) -> int | None:
    """Give the port that the server is to listen on, when it has said so."""
    for path in folder.glob("jpserver-*.json"):
        with contextlib.suppress(OSError, ValueError):
            said: object = json.loads(path.read_text())
            port = cast("dict[str, object]", said).get("port") if isinstance(said, dict) else None
            if isinstance(port, int) and port:
                return port
    return None
