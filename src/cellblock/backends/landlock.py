"""The weaker sandbox for machines without namespaces: Landlock, seccomp and limits."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import BackendError, SandboxUnavailable
from ..runtime import bootstrap
from ..runtime.spec import ConfinementSpec
from ..sandbox import landlock, seccomp
from .base import Backend
from .connection import Connection, start_server
from .host import process_spec
from .kernel_limits import allows_memory_files, plan_cgroups, rlimits
from .sandbox import DEVICES, TOP_DIRS, SandboxBackend, clean_environment, system_config_paths


@dataclass
class LandlockBackend(SandboxBackend, Backend):
    """Run cells as plain processes that can only open the files that a sandbox would contain.

    Paths are those of the host.

    `preload` has no effect, because each block starts its own interpreter.
    """

    async def open(self) -> Connection:
        """See `Backend`. Raise `SandboxUnavailable` if this machine does not support it."""
        if landlock.abi_version() == 0:
            raise SandboxUnavailable(
                "This kernel does not support Landlock, or Landlock is disabled. "
                "Use a kernel from 5.13 on, and enable Landlock."
            )
        cgroups = plan_cgroups(self.limits)
        confinement = self._landlock_confinement(has_cgroups=cgroups is not None)
        writable = [self.work_dir, self.scratch, *self._writable_sources()]
        spec = process_spec(self.work_dir, writable, confinement, self.limits, cgroups, self.delete)
        env, commands, home = (f"{self.scratch}/{name}" for name in ("env", "commands", "home"))
        environment = clean_environment(env, commands, home, self.policy)
        try:
            return await start_server(
                bootstrap.SERVER,
                spec,
                environment={**environment, "TMPDIR": home},
            )
        except BackendError as error:
            raise SandboxUnavailable(
                f"The Landlock sandbox cannot be set up on this machine. {error}"
            ) from error

    def _landlock_confinement(self, *, has_cgroups: bool) -> ConfinementSpec:
        readable = ["/usr", *(f"/{name}" for name in TOP_DIRS), *system_config_paths(), "/proc"]
        readable += [*self._interpreter_prefixes(), *self._package_folders()]
        readable += [mount.source for mount in self.policy.mounts(writable=False)]
        writable = [self.work_dir, self.scratch, *(f"/dev/{name}" for name in DEVICES)]
        writable += [mount.source for mount in self.policy.mounts(writable=True)]
        offline = self.policy.network == "none"
        if not offline:
            readable += ["/etc/resolv.conf", "/etc/hosts"]
        rules = landlock.confinement(
            landlock.abi_version(), filter(os.path.exists, readable), writable, tcp=not offline
        )
        memory_files = allows_memory_files(self.limits, has_cgroups=has_cgroups)
        program = seccomp.program(sockets=not offline, memory_files=memory_files)
        return ConfinementSpec(
            rlimits(self.limits, has_cgroups=has_cgroups, counts_user=True),
            program,
            rules,
            drop=True,
        )
