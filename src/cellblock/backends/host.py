"""The host without a sandbox: programs can see and do what the caller can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..limits import Limits
from ..runtime import bootstrap
from ..runtime.spec import CgroupPlan, ConfinementSpec, ServerSpec, ZygoteSpec
from .base import Backend
from .connection import Connection, start_server
from .kernel_limits import cell_limits, plan_cgroups, rlimits
from .other_systems import check_runtime_system


@dataclass
class HostBackend(Backend):
    """Run cells as plain processes of this machine, in `work_dir`.

    delete   paths that the runtime server removes when it ends, even if the caller was killed
    """

    work_dir: str
    limits: Limits
    environment: Mapping[str, str] | None = None
    delete: list[str] = field(default_factory=list[str])

    async def open(self) -> Connection:
        """See `Backend`."""
        check_runtime_system()
        cgroups = plan_cgroups(self.limits)
        confinement = ConfinementSpec(
            rlimits(self.limits, has_cgroups=cgroups is not None, counts_user=True)
        )
        spec = process_spec(
            self.work_dir, [self.work_dir], confinement, self.limits, cgroups, self.delete
        )
        return await start_server(bootstrap.SERVER, spec, environment=self.environment)


def process_spec(
    work_dir: str,
    writable: list[str],
    confinement: ConfinementSpec,
    limits: Limits,
    cgroups: CgroupPlan | None,
    delete: list[str],
) -> ServerSpec:
    """Return the specification of a runtime server whose cells are plain processes.

    `confinement` applies to each cell. What cells keep in the folders `writable` is limited.
    """
    return ServerSpec(
        ZygoteSpec(work_dir, confinement),
        cell_limits(limits),
        tuple(writable),
        cgroups,
        tuple(delete),
    )
