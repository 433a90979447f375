"""CellblockTaskEnvironment: tasks of Harbor without an engine. Needs the extra `harbor`."""

# Harbor is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.models.task.config import NetworkMode
from harbor.models.trial.config import ResourceMode

from ..box.base import Box
from ..errors import UserUnsupported
from ..executors.settings import to_json
from ..sandbox.cgroups import ADVICE, find_cgroups
from .box_argument import make_box
from .stopping import time_limit


class CellblockTaskEnvironment(BaseEnvironment):
    """Run a task of Harbor in a sandbox with a root file system of its own.

        harbor run ... --environment-import-path
            cellblock.integrations.harbor:CellblockTaskEnvironment --ek root=image.tar

    `root` is what `Sandbox` takes: a folder, an OCI image layout or an archive of `docker save` of
    the task's image, which is not built here. All other parameters of `Sandbox` are options too.
    The processors, memory and storage of the task are limits, unless `limits` names others. It gets
    no network if it asks for none.

    As in a container, commands are those of root, and so are files, if no other user is named.
    Where root cannot be had, they are those of the only user, who owns all files.
    """

    def __init__(self, *args: Any, root: str, **options: Any) -> None:
        known = inspect.signature(BaseEnvironment).parameters
        others = {name: value for name, value in options.items() if name not in known}
        self._options = {"root": root, **others}
        super().__init__(*args, **{name: options[name] for name in options.keys() & known})

    @staticmethod
    def type() -> str:
        """Return the name of this kind of environment."""
        return "cellblock"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What tasks can ask for."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return which resources of a task are limits here."""
        return EnvironmentResourceCapabilities(
            cpu_limit=bool(find_cgroups().processors), memory_limit=True, fractional_cpus=True
        )

    def _validate_definition(self) -> None:
        self._make_box()  # may raise; the sandbox checks its root when it starts

    def _make_box(self) -> Box:
        given = {"policy": {}, "limits": {}, **self._options}
        for name, task in (("policy", self._policy()), ("limits", self._limits())):
            own = to_json(given[name])
            given[name] = {**task, **own} if isinstance(own, Mapping) else own
        if given["policy"]["network"] != self._policy()["network"]:
            raise ValueError("The network is the task's, or what `harbor run` says. Not policy's.")
        return make_box(given, timeout=None, users=True)

    def _policy(self) -> dict[str, str]:
        is_closed = self._network_policy.network_mode == NetworkMode.NO_NETWORK
        return {"network": "none" if is_closed else "host"}

    def _limits(self) -> dict[str, float]:
        """Return the limits of the task."""
        processors = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        if processors is not None and not find_cgroups().processors:
            self.logger.warning(f"{processors} CPUs of the task are no limit here: {ADVICE}")
            processors = None
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        storage = self._effective_storage_mb
        sizes = {"memory_bytes": memory, "written_bytes": storage, "file_bytes": storage}
        limits = {name: size << 20 for name, size in sizes.items() if size is not None}
        return limits if processors is None else {**limits, "processors": processors}

    async def start(self, force_build: bool) -> None:
        """Start the sandbox, with the folders and files that the task wants."""
        self.sandbox = self._make_box()
        await self.sandbox.start()
        try:
            await self.sandbox.exec(["true"], user="root")
            self._root_user = "root"
        except UserUnsupported as error:
            self.logger.warning(f"No command of this task is root's: {error}")
            self._root_user = None
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
        """Run a command of bash. Raise `RuntimeError` at the time limit."""
        who, seconds = self._resolve_user(user), time_limit(self.sandbox, timeout_sec)
        done = await self.sandbox.exec(
            ["bash", "-c", command],
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
            timeout=seconds,
            user=self._root_user if who in (None, "root", 0) else who,
        )
        if done.timed_out:
            raise RuntimeError(f"Command timed out after {seconds} seconds")
        return ExecResult(
            stdout=done.stdout_text, stderr=done.stderr_text, return_code=done.exit_code
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox."""
        await self.sandbox.files.upload(source_path, target_path, user=self._root_user)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a folder into the sandbox."""
        await self.sandbox.files.upload(source_dir, target_dir, user=self._root_user)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the sandbox."""
        await self.sandbox.files.download(source_path, target_path, user=self._root_user)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a folder out of the sandbox."""
        await self.sandbox.files.download(source_dir, target_dir, user=self._root_user)
