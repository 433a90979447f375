"""KernelSession: the sandboxed session behind a Jupyter kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ..errors import WorkspaceError
from ..events import Ended
from ..executors.displays import DisplayFiles
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from .endings import as_notebook_text, describe_end


class KernelSession(SandboxSessionCodeExecutor):
    """A session whose client shows the displays. Two settings apply to the next block:

    is_silent      True if the block shows no value and is not counted
    allows_input   True if the client can answer `input()`

    refusal   why the session cannot start; "" if it can
    """

    _no_input: ClassVar[str] = (
        "input() is not available: nobody answers it, for example under nbconvert. "
        "Run the notebook in a client with a prompt, or put the value into the cell."
    )
    _loss_advice: ClassVar[str] = "The next cell starts a new session."
    input_is_timed = False
    is_silent = False
    allows_input = False
    refusal = ""

    async def _open(self) -> None:
        if self.refusal:
            raise WorkspaceError(self.refusal)
        await super()._open()

    def describe_end(self, ended: Ended) -> Ended:
        """Return the end of a cell with its texts in the words of a notebook."""
        message = describe_end(ended, self._block_limits(), self._wall_seconds())
        return replace(ended, message=message, notice=as_notebook_text(ended.notice))

    @property
    def max_checkpoints(self) -> int | None:
        """The largest number of checkpoints; None means no limit."""
        return self._settings.limits.checkpoints

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
