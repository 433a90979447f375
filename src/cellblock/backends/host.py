"""The host itself as a place: no sandbox. Programs see and may do what the caller sees and may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..limits import Limits
from ..runtime import bootstrap
from .base import Connection, Place, start_server
from .kernel_limits import plan_groups, rlimits


@dataclass
class HostPlace(Place):
    """Run cells as plain processes of this machine, in `work_dir`.

    delete   paths that the cell server removes when it ends, even if its owner was killed
    """

    work_dir: str
    limits: Limits
    environment: Mapping[str, str] | None = None
    delete: list[str] = field(default_factory=list[str])

    async def open(self) -> Connection:
        """Start the cell server. Raises `BackendError`."""
        groups = plan_groups(self.limits)
        confinement = {"rlimits": rlimits(self.limits, grouped=groups is not None)}
        spec = plain_spec(self.work_dir, confinement, self.limits, groups, self.delete)
        return await start_server(bootstrap.SERVER, spec, environment=self.environment)


def plain_spec(
    work_dir: str,
    confinement: dict[str, Any],
    limits: Limits,
    groups: dict[str, Any] | None,
    delete: list[str],
) -> dict[str, Any]:
    """Describe a cell server whose cells are plain processes of this machine, each in the given confinement."""
    return {
        "zygote": {
            "namespaces": False,
            "scripts": False,
            "tmpfs": [],
            "below_tmpfs": [],
            "cwd": work_dir,
            "preload": [],
            "confinement": confinement,
        },
        "limits": limits.to_dict(),
        "groups": groups,
        "delete": delete,
    }
