"""SandboxProgram: fresh processes in the sandbox, in an executor that is used again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence

from ...environments.virtualenv import context_of
from ...errors import WorkspaceError
from ...executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ...limits import MIB
from ...runtime.linux.safe_folder import empty_folder
from ..settings import ServedSettings
from .local_executor import LocalExecutor

_LITTLE = 16  # files and MiB that are removed without a thread


class SandboxProgram(LocalExecutor):
    """Runs blocks and programs in the sandbox, without traces of earlier ones after `reset`.

    Those with the same `group` and settings share a runtime server. `idle_since` is for its user.
    """

    def __init__(self, settings: ServedSettings, group: str) -> None:
        self._sandbox = SandboxCommandLineCodeExecutor(
            settings.run_seconds,
            virtual_env_context=None if settings.env is None else context_of(settings.env),
            packages=settings.packages,
            limits=settings.limits,
            policy=settings.policy,
            preload=settings.preload,
        )
        super().__init__(self._sandbox)
        self.group = self._sandbox.place.sharing_group = group
        self._pristine: list[object] = []
        self.idle_since = 0.0

    async def start(self, session_id: str) -> None:
        """See `ServedExecutor`."""
        await super().start(session_id)
        self._pristine = [*self._states()]

    async def reset(self) -> bool:
        """Remove all that code has left. Return False if that is impossible, so stop it.

        Call it when no code runs.
        """
        if self._sandbox.must_start():
            return False
        if _costs_little(self._emptied_folders()):
            return self._reset()
        return await asyncio.to_thread(self._reset)

    def _reset(self) -> bool:
        if not all(map(empty_folder, self._emptied_folders())):
            return False
        try:
            self._sandbox.place.forget_files()
            states = itertools.zip_longest(self._states(), self._pristine)
            return all(now == before for now, before in states)
        except (OSError, WorkspaceError):  # too many open files, for example
            return False

    def _emptied_folders(self) -> tuple[str, str]:
        return str(self._sandbox.work_dir), f"{self._sandbox.place.scratch}/home"

    def _states(self) -> Iterator[object]:
        """Yield what `_reset` does not undo: changes of the environment, and of the folders."""
        for folder in self._emptied_folders():
            yield os.stat(folder).st_mode, os.listxattr(folder)
        yield from _states(f"{self._sandbox.place.scratch}/env")


def _costs_little(folders: Sequence[str]) -> bool:
    """Return True if removing the contents of the folders takes less time than using a thread."""
    pending, cost = [*folders], 0
    with contextlib.suppress(OSError):  # code can take away permissions
        while pending and cost < _LITTLE:
            with os.scandir(pending.pop()) as entries:
                for entry in itertools.islice(entries, _LITTLE):
                    cost += 1 + entry.stat(follow_symlinks=False).st_size // MIB
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        return cost < _LITTLE
    return False


def _states(folder: str) -> Iterator[object]:
    """Yield the states of a folder and everything below it. Code cannot set the change times."""
    status = os.lstat(folder)
    yield folder, status.st_ino, status.st_mode, status.st_ctime_ns
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _states(entry.path)
            else:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_ino, status.st_mode, status.st_ctime_ns
