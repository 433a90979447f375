"""Describe the container engine that executors on this machine would use."""

from __future__ import annotations

from typing import Any

from ..errors import ContainerEngineUnavailable
from .client import open_client


async def engine_report() -> dict[str, Any]:
    """Return the engine's version, runtimes and abilities, as `doctor --json` prints them.

    If no engine can be used, return only `available` (False) and `reason`.
    """
    try:
        async with open_client() as client:
            info = client.info
            return {
                "available": True,
                "engine": str(info.get("OperatingSystem") or "unknown"),
                "version": str(info.get("ServerVersion") or "unknown"),
                "runtimes": client.runtimes,
                "default_runtime": str(info.get("DefaultRuntime") or ""),
                "cgroup_version": client.cgroup_version,
                "rootless": client.is_rootless,
                "holds_limits": client.enforces_limits,
            }
    except ContainerEngineUnavailable as error:
        return {"available": False, "reason": str(error)}


def format_engine_report(report: dict[str, Any]) -> str:
    """Return the report as one line of text."""
    if not report["available"]:
        return f"Containers cannot be used here. {report['reason']}"
    kind = "rootless" if report["rootless"] else "runs as root"
    limits = (
        ""
        if report["holds_limits"]
        else " (not usable: rlimits bound the memory and processes of each process separately)"
    )
    return (
        f"Containers can be used here: engine {report['version']} ({kind}), "
        f"runtimes {', '.join(report['runtimes'])}, "
        f"control groups version {report['cgroup_version']}{limits}."
    )
