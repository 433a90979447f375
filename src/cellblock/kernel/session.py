"""KernelSession: the sandboxed session behind a Jupyter kernel."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from ..blocks import CodeBlock
from ..cancellation import Token
from ..errors import WorkspaceError
from ..events import Ended, Event
from ..executors.argument_checks import shortest
from ..executors.displays import NoDisplayFiles
from ..executors.run_options import RunOptions
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from .endings import as_notebook_text, describe_end

_OPTIONS = RunOptions(
    has_colours=True,
    show_interrupts=True,
    no_input="input() is not available: nobody answers it, for example under nbconvert. "
    "Run the notebook in a client with a prompt, or put the value into the cell.",
    input_is_timed=False,
    displays=NoDisplayFiles(),  # the client shows them
)


class KernelSession:
    """A session whose client shows displays itself.

    refusal   why the session cannot start; "" if it can
    """

    def __init__(self, executor: SandboxSessionCodeExecutor, refusal: str = "") -> None:
        self._executor, self._refusal = executor, refusal
        executor.place.loss_advice = "The next cell starts a new session."

    @property
    def executor(self) -> SandboxSessionCodeExecutor:
        """The session. Raise `WorkspaceError` if it cannot start."""
        if self._refusal:
            raise WorkspaceError(self._refusal)
        return self._executor

    def stream(
        self, code: str, token: Token, *, is_silent: bool, allows_input: bool
    ) -> AsyncGenerator[Event, None]:
        """Run a block and yield its events.

        is_silent      True if the block shows no value and is not counted
        allows_input   True if the client can answer `input()`
        """
        options = replace(_OPTIONS, is_silent=is_silent, answers_input=allows_input)
        return self.executor.stream_blocks([CodeBlock(code, "python")], token, options)

    def describe_end(self, ended: Ended) -> Ended:
        """Return the end of a cell with its texts in the words of a notebook."""
        limits = self._executor.limits
        seconds = shortest(self._executor.timeout, limits.wall_seconds)
        message = describe_end(ended, limits, seconds)
        return replace(ended, message=message, notice=as_notebook_text(ended.notice))
