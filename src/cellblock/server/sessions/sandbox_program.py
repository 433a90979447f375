"""SandboxProgram: fresh processes in the sandbox, in an executor that is used again."""

from __future__ import annotations

from ...environments.virtualenv import context_of
from ...errors import WorkspaceError
from ...executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ...executors.places.clean_folders import CleanFolders
from ..settings import ServedSettings
from .local_executor import LocalExecutor


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
        self._folders: CleanFolders | None = None
        self.idle_since = 0.0

    async def start(self, session_id: str) -> None:
        """See `ServedExecutor`."""
        await super().start(session_id)
        self._folders = CleanFolders(self._sandbox.place)

    async def reset(self) -> bool:
        """Remove all that code has left. Return False if that is impossible, so stop it.

        Call it when no code runs.
        """
        if self._sandbox.must_start() or self._folders is None:
            return False
        if not await self._folders.clean():
            return False
        try:
            self._sandbox.place.forget_files()
        except (OSError, WorkspaceError):  # too many open files, for example
            return False
        return True
