"""LocalJupyterServer: a Jupyter server on this machine, with AutoGen 0.2's parameters."""

from __future__ import annotations

import os
from typing import Any

from ....executors.jupyter.servers.local import LocalJupyterServer as OurServer
from .generated_token import GenerateToken, Token, to_token


class LocalJupyterServer(OurServer):
    """Run a Jupyter server on the loopback, which is started here, until `stop`.

    token      the token of the server; a `GenerateToken` for a random one
    log_file   file to append the server's log to; None: the log is discarded

    `log_max_bytes` and `log_backup_count` are ignored: the log is not rotated. For the other
    parameters see `cellblock.LocalJupyterServer`. Raise `BackendError` if it does not start.
    """

    GenerateToken = GenerateToken

    def __init__(
        self,
        ip: str = "127.0.0.1",
        port: int | None = None,
        token: Token = None,
        log_file: str | os.PathLike[str] | None = None,
        log_level: str = "INFO",
        log_max_bytes: int = 1048576,
        log_backup_count: int = 3,
        **options: Any,
    ) -> None:
        super().__init__(ip, port, to_token(token), log_file, log_level, **options)
        self.start()
