"""What there is to say about the container engine that would be used."""

from __future__ import annotations

from typing import Any

from ..errors import ContainerEngineUnavailable
from .client import connected


async def engine_report() -> dict[str, Any]:
    """Give version, runtimes, control groups, whether it is rootless and whether control groups hold memory and processes.

    Or `reason`: why no engine can be used.
    """
    try:
        async with connected() as client:
            info = client.info
            return {
                "available": True,
                "engine": str(info.get("OperatingSystem") or "unknown"),
                "version": str(info.get("ServerVersion") or "unknown"),
                "runtimes": client.runtimes,
                "default_runtime": str(info.get("DefaultRuntime") or ""),
                "cgroup_version": client.cgroup_version,
                "rootless": client.is_rootless,
                "holds_limits": client.holds_limits,
            }
    except ContainerEngineUnavailable as error:
        return {"available": False, "reason": str(error)}


def as_text(report: dict[str, Any]) -> str:
    """Give the report in one line."""
    if not report["available"]:
        return f"Containers cannot be used here. {report['reason']}"
    kind = "rootless" if report["rootless"] else "with root's rights"
    limits = (
        ""
        if report["holds_limits"]
        else ", which it may not use: rlimits hold memory and processes, each process alone"
    )
    return (
        f"Containers can be used here: engine {report['version']} ({kind}), runtimes {', '.join(report['runtimes'])}, "
        f"control groups version {report['cgroup_version']}{limits}."
    )
