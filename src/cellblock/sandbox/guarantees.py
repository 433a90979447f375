"""What an executor guarantees on this machine, property by property. Pure: findings and settings in, statements out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..limits import Limits
from ..policy import Policy
from .cgroups import ADVICE
from .probe import Findings, namespace_advice

Level = Literal["enforced", "partly", "not possible here"]
Isolation = Literal["full", "landlock"]

_WEAKER = "Where namespaces are possible, the full sandbox does this."


@dataclass(frozen=True)
class Guarantee:
    """One property: how far it holds, what makes it hold, and what to do for more."""

    property: str
    level: Level
    mechanism: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return asdict(self)


def sandbox_guarantees(
    found: Findings, limits: Limits, policy: Policy, isolation: Isolation = "full"
) -> tuple[Guarantee, ...]:
    """Say what the sandbox executor guarantees with these settings."""
    walls = _full(found, policy) if isolation == "full" else _landlock(found, policy)
    return (*walls[:3], *_resources(found, limits), *walls[3:])


def host_guarantees(found: Findings, limits: Limits) -> tuple[Guarantee, ...]:
    """Say what the local executor guarantees: the ends of its blocks, and limits that were asked for."""
    none = "no sandbox: blocks have the caller's rights"
    advice = "Use SandboxCommandLineCodeExecutor."
    walls = [Guarantee(name, "not possible here", none, advice) for name in ("files", "network")]
    walls.append(
        Guarantee(
            "processes",
            "partly",
            "ended with their block; what blocks may signal is not bounded",
            advice,
        )
    )
    rest = [
        Guarantee(name, "not possible here", none, advice) for name in ("kernel surface", "secrets")
    ]
    return (*walls, *_resources(found, limits), *rest)


def _full(found: Findings, policy: Policy) -> list[Guarantee]:
    if found.namespaces:
        names = ("files", "network", "processes", "kernel surface", "secrets")
        return [
            Guarantee(name, "not possible here", found.namespaces, namespace_advice())
            for name in names
        ]
    second = (
        f"; Landlock (version {found.landlock_abi}) as a second wall" if not found.landlock else ""
    )
    return [
        Guarantee("files", "enforced", f"mount namespace: a root of its own, read-only{second}"),
        _network(found, policy),
        Guarantee("processes", "enforced", "process namespace for each block; it ends as a whole"),
        _kernel_surface(found),
        Guarantee(
            "secrets", "enforced", "clean environment, own /proc, nothing of the caller's home"
        ),
    ]


def _network(found: Findings, policy: Policy) -> Guarantee:
    if policy.network == "none":
        return Guarantee(
            "network", "enforced", "network namespace with nothing but its own loopback"
        )
    abstract = (
        "; Landlock keeps abstract sockets out"
        if found.landlock_abi >= 6
        else "; abstract sockets included"
    )
    return Guarantee(
        "network",
        "not possible here",
        f"the policy gives the host's network{abstract}",
        "Policy(network='none').",
    )


def _kernel_surface(found: Findings) -> Guarantee:
    if found.seccomp:
        return Guarantee(
            "kernel surface",
            "not possible here",
            found.seccomp,
            "Use a kernel with seccomp filters.",
        )
    return Guarantee(
        "kernel surface", "enforced", "seccomp filter, no capabilities, no new privileges"
    )


def _landlock(found: Findings, policy: Policy) -> list[Guarantee]:
    if found.landlock:
        names = ("files", "network", "processes", "secrets")
        missing = [
            Guarantee(name, "not possible here", found.landlock, "Use a kernel from 5.13 on.")
            for name in names
        ]
        return [*missing[:3], _kernel_surface(found), missing[3]]
    signals = found.landlock_abi >= 6
    network = (
        Guarantee("network", "enforced", "seccomp filter without sockets")
        if policy.network == "none"
        else Guarantee(
            "network",
            "not possible here",
            "the policy gives the host's network",
            "Policy(network='none').",
        )
    )
    return [
        Guarantee(
            "files", "partly", "Landlock: paths outside can be seen to exist, not opened", _WEAKER
        ),
        network,
        Guarantee(
            "processes",
            "partly",
            "ended with their block; Landlock refuses signals to others"
            if signals
            else "ended with their block",
            _WEAKER,
        ),
        _kernel_surface(found),
        Guarantee(
            "secrets",
            "partly",
            "clean environment; others' processes are visible, not readable",
            _WEAKER,
        ),
    ]


def _resources(found: Findings, limits: Limits) -> tuple[Guarantee, ...]:
    return _memory(found, limits), _cpu(found, limits), _disk(limits)


def _memory(found: Findings, limits: Limits) -> Guarantee:
    if limits.memory_bytes is None:
        return Guarantee(
            "memory", "not possible here", "no limit is set", "Set Limits.memory_bytes."
        )
    if found.groups.version:
        return Guarantee(
            "memory",
            "enforced",
            f"control group (v{found.groups.version}) for each block's whole tree",
        )
    mechanism = (
        "watched every 50 ms, without temporary files and memfd; RLIMIT_DATA for each process; "
        f"no control groups ({found.groups.why})"
    )
    return Guarantee("memory", "partly", mechanism, ADVICE)


def _cpu(found: Findings, limits: Limits) -> Guarantee:
    if limits.processors is not None and not found.groups.processors:
        why = found.groups.why or "no cpu controller is mounted"
        return Guarantee(
            "cpu", "not possible here", f"processors: no control groups ({why})", ADVICE
        )
    share = (
        f"; processors by control group (v{found.groups.version})"
        if limits.processors is not None
        else ""
    )
    if limits.cpu_seconds is None:
        return Guarantee(
            "cpu",
            "partly",
            f"wall time alone, by the cell server{share}",
            "Set Limits.cpu_seconds.",
        )
    mechanism = "wall time by the cell server; CPU time by a look every 50 ms and RLIMIT_CPU for each process"
    if found.groups.time:
        return Guarantee(
            "cpu",
            "enforced",
            f"{mechanism}, counted by control group (v{found.groups.version}){share}",
        )
    unseen = "children that nobody waits for are not counted once they have ended"
    return Guarantee("cpu", "partly", f"{mechanism}; {unseen}{share}", ADVICE)


def _disk(limits: Limits) -> Guarantee:
    if limits.file_bytes is None and limits.written_bytes is None:
        return Guarantee(
            "disk",
            "not possible here",
            "no limit is set",
            "Set Limits.file_bytes and written_bytes.",
        )
    return Guarantee(
        "disk",
        "partly",
        "RLIMIT_FSIZE for each file; the sum of writes is looked at every 50 ms and can be overshot; "
        "processes that hide from it are not counted",
        "Give a work_dir on a filesystem of the size that you want.",
    )
