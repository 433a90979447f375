"""The executors of served sessions: live sessions that see their work folder as /mnt/data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...executors.argument_checks import shortest
from ...executors.displays import DisplayFiles
from ...executors.session.base import SessionExecutor
from ...executors.session.docker import DockerSessionCodeExecutor
from ...executors.session.sandbox import SandboxSessionCodeExecutor

DATA_DIR = "/mnt/data"


class _NoDisplayFiles(DisplayFiles):
    """Save nothing: clients receive displays in the result."""

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        return ()


class ServedSession(SessionExecutor):
    """A session whose runs have time limits of their own, and whose displays are not saved.

    Set `run_seconds` only while no run is active.
    """

    run_seconds: float | None = None

    def _wall_seconds(self) -> float | None:
        return shortest(super()._wall_seconds(), self.run_seconds)

    def _display_files(self) -> DisplayFiles:
        return _NoDisplayFiles(Path())


class ServedSandboxSession(ServedSession, SandboxSessionCodeExecutor):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A session in the sandbox. The server's policy must have a mount at /mnt/data to hide."""

    def _mounts(self, scratch: Path) -> list[dict[str, Any]]:
        mounts = super()._mounts(scratch)
        return [*mounts, {**mounts[0], "target": DATA_DIR, "owned": False}]


class ServedDockerSession(ServedSession, DockerSessionCodeExecutor):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A session in a container, whose work folder must be a volume at /mnt/data too."""
