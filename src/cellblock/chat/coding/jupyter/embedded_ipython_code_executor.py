"""EmbeddedIPythonCodeExecutor: run blocks in a Jupyter kernel of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .... import sync
from ....blocks import CodeBlockLike
from ....cancellation import Token
from ..base import IPythonCodeResult
from .saved_displays import existing_folder, to_ipython_result


class EmbeddedIPythonCodeExecutor(sync.JupyterCodeExecutor):
    """Run blocks in a Jupyter kernel, which is started here and keeps its variables.

    The kernel runs as you, without a sandbox. `output_dir` is the folder for pictures and HTML
    pages. `stop` and the end of this process end the kernel. Raise `BackendError` if the kernel is
    not installed, and `ValueError` if the folder is missing.
    """

    def __init__(
        self,
        timeout: float = 60,
        kernel_name: str = "python3",
        output_dir: str | os.PathLike[str] = Path("."),
    ) -> None:
        super().__init__(kernel_name, timeout, existing_folder(output_dir))
        self.start()

    def execute_code_blocks(  # pyright: ignore[reportIncompatibleMethodOverride] - AutoGen's result
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> IPythonCodeResult:
        """Run the blocks in order and return their result."""
        return to_ipython_result(super().execute_code_blocks(code_blocks, cancellation_token))
