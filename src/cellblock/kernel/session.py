"""KernelSession: the sandboxed session behind a Jupyter kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..executors.displays import DisplayFiles
from ..executors.session.sandbox import SandboxSessionCodeExecutor


class KernelSession(SandboxSessionCodeExecutor):
    """A session whose client shows displays itself. Two settings apply to the next block:

    is_silent      True if the block shows no value and is not counted
    allows_input   True if the client can answer `input()`
    """

    is_silent = False
    allows_input = False

    def _run_request(self, code: str, name: str = "") -> dict[str, Any]:
        request = super()._run_request(code, name)
        has_input = request["input"] and self.allows_input
        settings = {"silent": self.is_silent, "input": has_input}
        return {**request, **settings, "show_interrupts": True, "colours": True}

    def _display_files(self) -> DisplayFiles:
        return _NoFiles(Path(self.work_dir))


class _NoFiles(DisplayFiles):
    """Save nothing: the client receives the content itself."""

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        """See `DisplayFiles`."""
        return ()
