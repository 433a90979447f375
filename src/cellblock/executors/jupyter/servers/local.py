"""LocalJupyterServer: a Jupyter server on this machine, reachable only on the loopback."""

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

from ....backends.connection import Connection
from ....backends.host import HostBackend
from ....errors import BackendError
from ....limits import LOCAL_LIMITS, Limits
from ....runtime import protocol
from ....runtime.handshake import CellJob
from ....runtime.linux import process_tree
from ....runtime.linux.safe_folder import remove_tree
from ....runtime.messages import RunRequest
from ...argument_checks import check_limits
from ..connection_info import JupyterConnectionInfo
from .base import ManagedJupyterServer

_START_SECONDS = 60.0  # until the server must accept connections
_LISTENS = "0A"  # the state in /proc/net/tcp
_PORT_TRIES = 5
_PORT_TAKEN = b"is already in use"  # in the server's log
_MISSING = "jupyter_server is not installed: pip install 'cellblock[jupyter]'."
# Without extensions, which are pages and their files, and without the grammar of URLs that
# jsonschema would import: both take seconds.
_PROGRAM = """
import sys
sys.modules["rfc3987_syntax"] = None
from jupyter_server.serverapp import ServerApp
server = ServerApp.instance()
server.initialize(find_extensions=False)
server.start()
"""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class LocalJupyterServer(ManagedJupyterServer):
    """Run a Jupyter server with a token on the loopback until `stop` or the end of this process.

    ip         an address of the loopback
    port       None: a free port
    token      None: a random token
    log_file   file to append the server's log to; None: the log is discarded
    log_level  level of the server's log
    work_dir   current folder of the kernels; None: the caller's current folder at the start
    limits     limits of the server and all its kernels together

    The server starts on `with`, `async with`, `start()` or a read of `connection_info`. It runs as
    a cell: when it is stopped or this process dies, all its descendants are killed. It ignores the
    user's configuration of Jupyter servers, and installed extensions, but finds the user's kernel
    specs.
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
                f"ip must be one of {', '.join(_LOOPBACK)}, not {ip!r}: other machines could "
                "reach the server."
            )
        if token == "":
            raise ValueError(
                "token must not be empty: every user of this machine could use the server."
            )
        self._ip, self._port, self._token = ip, port, token or secrets.token_hex(32)
        self._log_file = None if log_file is None else Path(log_file)
        self._log_level = log_level
        self._work_dir = None if work_dir is None else Path(work_dir)
        self._limits = check_limits(limits, LOCAL_LIMITS)
        self._runtime_folder: Path | None = None
        self._connection: Connection | None = None
        self._cell_task: asyncio.Task[None] | None = None
        self._tail = b""

    # on the background loop

    def _is_alive(self) -> bool:
        return self._cell_task is not None and not self._cell_task.done()

    async def _launch(self) -> JupyterConnectionInfo:
        self._runtime_folder = folder = Path(tempfile.mkdtemp(prefix="cellblock-jupyter-"))
        work_dir = str((self._work_dir or Path.cwd()).resolve())
        self._connection = await HostBackend(
            work_dir, self._limits, dict(os.environ), [str(folder)]
        ).open()
        # The token is passed in the environment, because every user can read the arguments.
        environment = {
            "JUPYTER_TOKEN": self._token,
            "JUPYTER_RUNTIME_DIR": str(folder),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JPY_PARENT_PID": "0",
        }
        request = RunRequest(CellJob(argv=self._argv(work_dir), env=environment))
        for _ in range(_PORT_TRIES):
            self._tail = b""
            self._cell_task = asyncio.create_task(self._run_cell(self._connection, request))
            port = await self._wait_until_it_listens(self._connection, self._cell_task, folder)
            if port is not None:
                return JupyterConnectionInfo(self._ip, False, port, self._token)
            # The server finds a free port, and binds it later: another program can take it first.
            if self._port is not None or _PORT_TAKEN not in self._tail:
                break
            for published in _published_files(folder):
                published.unlink(missing_ok=True)
        output = self._tail.decode(errors="replace").replace(self._token, "***").strip()
        hint = f"{_MISSING} " if "No module named" in output else ""
        raise BackendError(f"The Jupyter server did not start. {hint}It printed: {output}")

    async def _wait_until_it_listens(
        self, connection: Connection, cell: asyncio.Task[None], folder: Path
    ) -> int | None:
        """Return the server's port. Return None if it has ended, or does not listen in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while not cell.done():
                    # The server publishes its port shortly before it listens. If another program
                    # listens there, it must not receive the token.
                    port = _published_port(folder)
                    if port is not None and _listens_below(connection.pid, port):
                        return port
                    await asyncio.sleep(0.05)
        return None

    def _argv(self, work_dir: str) -> tuple[str, ...]:
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
            # The rate limit drops output beyond a megabyte a second.
            "ZMQChannelsWebsocketConnection.limit_rate": False,
        }
        options = (f"--{name}={value}" for name, value in settings.items())
        return (sys.executable, "-c", _PROGRAM, *options)

    async def _run_cell(self, connection: Connection, request: RunRequest) -> None:
        async with contextlib.aclosing(connection.run(request)) as frames:
            async for frame in frames:
                if frame.kind in (protocol.STDOUT, protocol.STDERR):
                    self._tail = (self._tail + frame.payload)[-2000:]
                    self._append_to_log(frame.payload)

    def _append_to_log(self, data: bytes) -> None:
        if self._log_file is not None:
            with contextlib.suppress(OSError), open(self._log_file, "ab") as file:
                file.write(data.replace(self._token.encode(), b"***"))

    async def _shut_down(self) -> None:
        cell_task, self._cell_task = self._cell_task, None
        if cell_task is not None:
            cell_task.cancel()
            await asyncio.wait([cell_task])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        folder, self._runtime_folder = self._runtime_folder, None
        if folder is not None:
            await asyncio.to_thread(remove_tree, str(folder))


def _listens_below(process: int, port: int) -> bool:
    """Return True if a process below `process` listens on `port`; see proc_net(5)."""
    sockets = set[str]()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}") as file:
            for _, address, _, state, *others in map(str.split, file):
                if state == _LISTENS and int(address.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{others[5]}]")
    for pid in process_tree.descendants(process):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") in sockets:
                        return True
    return False


def _published_files(folder: Path) -> list[Path]:
    return list(folder.glob("jpserver-*.json"))


def _published_port(folder: Path) -> int | None:
    """Return the port that the server has published in its runtime folder, or None."""
    for path in _published_files(folder):
        with contextlib.suppress(OSError, ValueError):
            info: object = json.loads(path.read_text())
            port = cast("dict[str, object]", info).get("port") if isinstance(info, dict) else None
            if isinstance(port, int) and port:
                return port
    return None
