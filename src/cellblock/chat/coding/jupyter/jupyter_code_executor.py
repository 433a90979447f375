"""JupyterCodeExecutor: run blocks in a kernel of a Jupyter server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .... import sync
from ....blocks import CodeBlockLike
from ....cancellation import Token
from ....executors.jupyter.connection_info import JupyterConnectable, JupyterConnectionInfo
from ..base import IPythonCodeResult
from .saved_displays import existing_folder, to_ipython_result


class JupyterCodeExecutor(sync.JupyterServerCodeExecutor):
    """Run blocks in a kernel, which is started here on a Jupyter server and keeps its variables.

    jupyter_server   a `JupyterConnectionInfo`, or a server such as `LocalJupyterServer`
    output_dir       folder for pictures and HTML pages

    `stop` deletes the kernel. Raise `BackendError` if the server does not respond or has no such
    kernel, and `ValueError` if the folder is missing.
    """

    def __init__(
        self,
        jupyter_server: JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: float = 60,
        output_dir: str | os.PathLike[str] = Path("."),
    ) -> None:
        super().__init__(jupyter_server, kernel_name, timeout, existing_folder(output_dir))
        self.start()

    def execute_code_blocks(  # pyright: ignore[reportIncompatibleMethodOverride] - AutoGen's result
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> IPythonCodeResult:
        """Run the blocks in order and return their result."""
        return to_ipython_result(super().execute_code_blocks(code_blocks, cancellation_token))
