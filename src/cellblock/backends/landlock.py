"""The weaker sandbox, where namespaces are forbidden: Landlock, a system call filter and limits around plain processes."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from typing import Any

from ..errors import BackendError, SandboxUnavailable
from ..runtime import bootstrap
from ..sandbox import landlock, seccomp
from .base import Connection, start_server
from .host import plain_spec
from .kernel_limits import plan_groups, rlimits
from .sandbox import DEVICES, TOP_FOLDERS, SandboxPlace, clean_environment, settings_of_programs


@dataclass
class LandlockPlace(SandboxPlace):
    """Run cells as plain processes that can open nothing but what the sandbox would show, under the names outside.

    `preload` has no effect: each block starts an interpreter of its own.
    """

    async def open(self) -> Connection:
        """Start the cell server. Raises `SandboxUnavailable` when this machine does not allow even that."""
        if landlock.abi() == 0:
            raise SandboxUnavailable(
                "This kernel has no Landlock (it came with 5.13), or it is switched off."
            )
        groups = plan_groups(self.limits)
        confinement = self._confinement(grouped=groups is not None)
        spec = plain_spec(self.work_dir, confinement, self.limits, groups, self.delete)
        environment = clean_environment(f"{self.scratch}/env", f"{self.scratch}/home", self.policy)
        try:
            return await start_server(
                bootstrap.SERVER,
                spec,
                environment={**environment, "TMPDIR": f"{self.scratch}/home"},
            )
        except BackendError as error:
            raise SandboxUnavailable(f"The weaker sandbox cannot be built here. {error}") from error

    def _confinement(self, *, grouped: bool) -> dict[str, Any]:
        readable = ["/usr", *(f"/{name}" for name in TOP_FOLDERS), *settings_of_programs(), "/proc"]
        readable += [*self._own_prefixes(), *self._package_folders()]
        readable += [mount.source for mount in self.policy.mounts(writable=False)]
        writable = [self.work_dir, self.scratch, *(f"/dev/{name}" for name in DEVICES)]
        writable += [mount.source for mount in self.policy.mounts(writable=True)]
        offline = self.policy.network == "none"
        if not offline:
            readable += ["/etc/resolv.conf", "/etc/hosts"]
        rules = landlock.confinement(
            landlock.abi(), filter(os.path.exists, readable), writable, tcp=not offline
        )
        program = seccomp.program(sockets=not offline)
        return {
            "rlimits": rlimits(self.limits, grouped=grouped),
            "filter_program": base64.b64encode(program).decode(),
            "drop": True,
            **rules,
        }
