"""CellblockTaskEnvironment: tasks of Harbor without an engine. Needs the extra `harbor`."""

# Harbor is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.task.config import NetworkMode

from ..box.sandbox import Sandbox
from ..errors import UserUnsupported
from ..policy import Policy
from .stopping import time_limit


class CellblockTaskEnvironment(BaseEnvironment):
    """Run a task of Harbor in a sandbox with a root file system of its own.

        harbor run ... --environment-import-path
            cellblock.integrations.harbor:CellblockTaskEnvironment --ek root=image.tar

    `root` is what `Sandbox` takes: a folder, an OCI image layout or an archive of `docker save` of
    the task's image, which is not built here. A task gets no network if it asks for none.
    """

    def __init__(self, *args: Any, root: str, **options: Any) -> None:
        self._root = root
        super().__init__(*args, **options)

    @staticmethod
    def type() -> str:
        """Return the name of this kind of environment."""
        return "cellblock"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What tasks can ask for."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        pass  # the sandbox checks its root when it starts

    async def start(self, force_build: bool) -> None:
        """Start the sandbox, with the folders and files that the task wants."""
        is_closed = self._network_policy.network_mode == NetworkMode.NO_NETWORK
        policy = Policy() if is_closed else Policy(network="host")
        self.sandbox = Sandbox(timeout=None, policy=policy, root=self._root)
        await self.sandbox.start()
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Close the sandbox."""
        await self.sandbox.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command of bash. Raise `RuntimeError` at the time limit.

        Where root cannot be had, its commands run as the only user, who owns all files.
        """
        run = functools.partial(
            self.sandbox.exec,
            ["bash", "-c", command],
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
            timeout=time_limit(self.sandbox, timeout_sec),
        )
        who = self._resolve_user(user)
        try:
            done = await run(user=who)
        except UserUnsupported:
            if who not in ("root", 0):
                raise
            done = await run()
        if done.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(
            stdout=done.stdout_text, stderr=done.stderr_text, return_code=done.exit_code
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox."""
        await self.sandbox.files.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a folder into the sandbox."""
        await self.sandbox.files.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the sandbox."""
        await self.sandbox.files.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a folder out of the sandbox."""
        await self.sandbox.files.download(source_dir, target_dir)
