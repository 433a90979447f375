"""The executors of served sessions: live sessions that see their work folder as /mnt/data."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ...cancellation import Token
from ...executors.argument_checks import shortest
from ...executors.displays import DisplayFiles
from ...executors.session.checkpointing import CheckpointableSession
from ...executors.session.docker import DockerSessionCodeExecutor
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ...limits import Limits
from ...runtime.protocol import Frame

DATA_DIR = "/mnt/data"
_NO_TERMINAL_INPUT = "EOF when reading a line"  # Python's words


class _NoDisplayFiles(DisplayFiles):
    """Save nothing: clients receive displays in the result."""

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        return ()


class ServedSession(CheckpointableSession):
    """A session whose runs have limits of their own, and whose displays are not saved."""

    _no_input: ClassVar[str] = (
        "input() is not available here. Put the values into the code or a file."
    )

    def _init_state(self) -> None:
        super()._init_state()
        self._run_seconds: float | None = None
        self._written_bytes: int | None = None
        self._terminal_mode: str | None = None

    @contextlib.contextmanager
    def lower_limits(
        self,
        run_seconds: float | None = None,
        written_bytes: int | None = None,
        terminal_mode: str | None = None,
    ) -> Generator[None]:
        """Lower the limits of the one run, checkpoint or fork that happens in the context.

        With `terminal_mode`, its output is that of IPython in a terminal.
        """
        self._run_seconds, self._written_bytes = run_seconds, written_bytes
        self._terminal_mode = terminal_mode
        try:
            yield
        finally:
            self._run_seconds = self._written_bytes = self._terminal_mode = None

    def folders(self) -> list[Path]:
        """Return the folders on this machine that have the files of the session.

        Safe to call in any thread.
        """
        if self._workspace is None:
            return []
        return [self._workspace.path, *(each.snapshot.path for each in self.checkpoints)]

    def ignore_upload(self, name: str) -> None:
        """Do not report a file that a client has written as a change by code."""
        if self._workspace is not None:
            self._workspace.ignore_upload(name)

    def _wall_seconds(self) -> float | None:
        return shortest(super()._wall_seconds(), self._run_seconds)

    def _block_limits(self) -> Limits:
        if self._written_bytes is None:
            return self._settings.limits
        allowed = self.limits.written_bytes
        lower = self._written_bytes if allowed is None else min(self._written_bytes, allowed)
        return replace(self.limits, written_bytes=lower)

    def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        own: dict[str, Any] = {"written_bytes": self._written_bytes}
        if self._terminal_mode is not None:
            own |= {"terminal": self._terminal_mode, "no_input": _NO_TERMINAL_INPUT}
        return super()._frames({**request, **own}, token)

    def _display_files(self) -> DisplayFiles:
        return _NoDisplayFiles(Path())


class ServedSandboxSession(ServedSession, SandboxSessionCodeExecutor):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A session in the sandbox."""

    def folders(self) -> list[Path]:
        """See `ServedSession`. The scratch folder has the home, packages and checkpoints."""
        return [*super().folders(), *(() if self._scratch is None else (self._scratch,))]


class ServedDockerSession(ServedSession, DockerSessionCodeExecutor):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A session in a container, whose work folder must be a volume at /mnt/data too.

    It cannot be forked: in the same container, /mnt/data of the copy would be the original's.
    """

    _first_folder = DATA_DIR

    def _fork_obstacle(self) -> str:
        return "--executor docker"
