"""What an executor guarantees on this machine, property by property.

Functions without effects: results of the probe and settings in, statements out.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..limits import Limits
from ..policy import Policy
from .cgroups import ADVICE
from .probe import Findings, namespace_advice

# "off": no such limit is set. "given by policy": the policy gives blocks what they would not have.
Level = Literal["enforced", "partly", "off", "given by policy", "not possible here"]
Isolation = Literal["full", "landlock"]

_USE_FULL_SANDBOX = "Where namespaces are possible, the full sandbox does this."


@dataclass(frozen=True)
class Guarantee:
    """One property: how far it is guaranteed, by what mechanism, and what to do for more."""

    property: str
    level: Level
    mechanism: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def sandbox_guarantees(
    findings: Findings,
    limits: Limits,
    policy: Policy,
    isolation: Isolation = "full",
    *,
    in_memory: bool = False,
) -> tuple[Guarantee, ...]:
    """Return what the sandbox executor guarantees with these settings.

    `in_memory`: the work folder is on a filesystem in memory.
    """
    protections = (
        _full_sandbox(findings, policy)
        if isolation == "full"
        else _landlock_sandbox(findings, policy)
    )
    resources = (
        _memory(findings, limits, "temporary files"),
        _cpu(findings, limits),
        _disk(findings, limits, in_memory=in_memory),
    )
    return (*protections[:3], *resources, *protections[3:])


def root_guarantee(*, is_copied: bool) -> Guarantee:
    """Return what a box guarantees whose commands have a root file system of their own."""
    if is_copied:
        mechanism = "each box has its own copy, because overlayfs is not possible here"
        advice = "Use Linux 5.11 or later, and TMPDIR on a disk."
    else:
        mechanism, advice = "read-only; each box has its own changes, by overlayfs", ""
    return Guarantee("root file system", "enforced", mechanism, advice)


def users_guarantee(why_not: str) -> Guarantee:
    """Return what a box guarantees whose commands can have other users. `why_not`: they cannot."""
    if why_not:
        return Guarantee("users", "not possible here", "one user, without privileges", why_not)
    mechanism = (
        "root and others, by mapped IDs: privileges over files and processes of the box only, and "
        "the same filter of system calls; what others leave in your folders becomes yours"
    )
    return Guarantee("users", "enforced", mechanism)


def host_guarantees(
    findings: Findings, limits: Limits, *, in_memory: bool = False
) -> tuple[Guarantee, ...]:
    """Return what the local executor guarantees: the end of its blocks, and limits that are set."""
    none = "no sandbox: blocks have the caller's rights"
    advice = "Use SandboxCommandLineCodeExecutor."
    protections = [
        Guarantee(name, "not possible here", none, advice) for name in ("files", "network")
    ]
    protections.append(
        Guarantee(
            "processes",
            "partly",
            "ended with their block; blocks can signal any process of the caller"
            f"{_process_limit_of_user(findings)}",
            advice,
        )
    )
    rest = [
        Guarantee(name, "not possible here", none, advice) for name in ("kernel surface", "secrets")
    ]
    resources = (
        _memory(findings, limits, "temporary files and memfd"),
        _cpu(findings, limits),
        _disk(findings, limits, in_memory=in_memory),
    )
    return (*protections, *resources, *rest)


def _full_sandbox(findings: Findings, policy: Policy) -> list[Guarantee]:
    if findings.namespaces:
        names = ("files", "network", "processes", "kernel surface", "secrets")
        return [
            Guarantee(name, "not possible here", findings.namespaces, namespace_advice())
            for name in names
        ]
    second = (
        f"; Landlock (version {findings.landlock_abi}) as a second protection"
        if not findings.landlock
        else ""
    )
    return [
        Guarantee(
            "files",
            "enforced",
            f"mount namespace: a separate, read-only root{second}"
            f"{_startup_files(policy)}{_given_mounts(policy)}",
        ),
        _network(findings, policy),
        Guarantee(
            "processes",
            "enforced",
            f"process namespace for each block; it ends as a whole{_process_limit(findings)}",
        ),
        _kernel_surface(findings),
        _secrets(
            "enforced",
            "clean environment, separate /proc, nothing of the caller's home but the work folder",
            policy,
        ),
    ]


def _process_limit(findings: Findings) -> str:
    if findings.cgroups.version:
        return ""
    return "; without control groups Limits.processes counts all blocks of an executor together"


def _process_limit_of_user(findings: Findings) -> str:
    if findings.cgroups.version:
        return ""
    return (
        "; without control groups Limits.processes counts what this user has started since the "
        "executor started"
    )


def _startup_files(policy: Policy) -> str:
    if policy.protect_startup_files:
        return "; startup files at the top of your work folder are read-only"
    return "; your policy lets blocks change startup files"


def _given_mounts(policy: Policy) -> str:
    mounts = [f"{mount.source} (read-only)" for mount in policy.mounts(writable=False)]
    mounts += [f"{mount.source} (writable)" for mount in policy.mounts(writable=True)]
    return f"; your policy gives {', '.join(mounts)}" if mounts else ""


def _secrets(level: Level, mechanism: str, policy: Policy, advice: str = "") -> Guarantee:
    """Return the guarantee for secrets, with the variables and parts of the home that are given."""
    mounts = (*policy.mounts(writable=False), *policy.mounts(writable=True))
    given = [f"the variable {name}" for name in policy.environment]
    given += [mount.source for mount in mounts if _overlaps_home(mount.source)]
    if not given:
        return Guarantee("secrets", level, mechanism, advice)
    return Guarantee(
        "secrets",
        "given by policy",
        f"your policy gives {', '.join(given)}; otherwise: {mechanism}",
        "Remove from the policy what blocks do not need.",
    )


def _overlaps_home(source: str) -> bool:
    """Return True if `source` is in the caller's home, or contains it."""
    path, home = Path(source).resolve(), Path(os.path.expanduser("~")).resolve()
    return path.is_relative_to(home) or home.is_relative_to(path)


def _network(findings: Findings, policy: Policy) -> Guarantee:
    if policy.network == "none":
        return Guarantee(
            "network", "enforced", "network namespace with nothing but its own loopback"
        )
    abstract = (
        "; Landlock keeps abstract sockets out"
        if findings.landlock_abi >= 6
        else "; abstract sockets included"
    )
    return _given_network(abstract)


def _given_network(detail: str = "") -> Guarantee:
    return Guarantee(
        "network",
        "given by policy",
        f"your policy gives the host's network{detail}",
        "Set Policy(network='none').",
    )


def _kernel_surface(findings: Findings) -> Guarantee:
    if findings.seccomp:
        return Guarantee(
            "kernel surface",
            "not possible here",
            findings.seccomp,
            "Use a kernel with seccomp filters.",
        )
    return Guarantee(
        "kernel surface", "enforced", "seccomp filter, no capabilities, no new privileges"
    )


def _landlock_sandbox(findings: Findings, policy: Policy) -> list[Guarantee]:
    if findings.landlock:
        names = ("files", "network", "processes", "secrets")
        missing = [
            Guarantee(name, "not possible here", findings.landlock, "Use a kernel from 5.13 on.")
            for name in names
        ]
        return [*missing[:3], _kernel_surface(findings), missing[3]]
    signals = findings.landlock_abi >= 6
    network = (
        Guarantee("network", "enforced", "seccomp filter without sockets")
        if policy.network == "none"
        else _given_network()
    )
    return [
        Guarantee(
            "files",
            "partly",
            "Landlock: code can see that outside paths exist, but cannot open them"
            f"; startup files can be changed{_given_mounts(policy)}",
            _USE_FULL_SANDBOX,
        ),
        network,
        Guarantee(
            "processes",
            "partly",
            "ended with their block"
            f"{'; Landlock refuses signals to others' if signals else ''}"
            f"{_process_limit_of_user(findings)}",
            _USE_FULL_SANDBOX,
        ),
        _kernel_surface(findings),
        _secrets(
            "partly",
            "clean environment; other processes are visible, but not readable",
            policy,
            _USE_FULL_SANDBOX,
        ),
    ]


def _memory(findings: Findings, limits: Limits, uncounted: str) -> Guarantee:
    """Return the guarantee for memory. `uncounted`: what only control groups count."""
    if limits.memory_bytes is None:
        return Guarantee("memory", "off", "no limit is set", "Set Limits.memory_bytes.")
    if findings.cgroups.version:
        return Guarantee(
            "memory",
            "enforced",
            f"control group (v{findings.cgroups.version}) for all processes of a block",
        )
    mechanism = (
        f"checked every 50 ms, without {uncounted}, and can be exceeded in between; "
        "RLIMIT_DATA, which is far higher, for each process; "
        f"no control groups ({findings.cgroups.why})"
    )
    return Guarantee("memory", "partly", mechanism, ADVICE)


def _cpu(findings: Findings, limits: Limits) -> Guarantee:
    if limits.processors is not None and not findings.cgroups.processors:
        why = findings.cgroups.why or "no cpu controller is mounted"
        return Guarantee(
            "cpu", "not possible here", f"processors: no control groups ({why})", ADVICE
        )
    share = (
        f"; processors by control group (v{findings.cgroups.version})"
        if limits.processors is not None
        else ""
    )
    if limits.cpu_seconds is None:
        return Guarantee(
            "cpu",
            "partly",
            f"only wall time, by the runtime server{share}",
            "Set Limits.cpu_seconds.",
        )
    mechanism = (
        "wall time by the runtime server; CPU time by a check every 50 ms and RLIMIT_CPU for each "
        "process"
    )
    if findings.cgroups.cpu_time:
        return Guarantee(
            "cpu",
            "enforced",
            f"{mechanism}, counted by control group (v{findings.cgroups.version}){share}",
        )
    unseen = "children that no process waits for are not counted once they have ended"
    return Guarantee("cpu", "partly", f"{mechanism}; {unseen}{share}", ADVICE)


def _disk(findings: Findings, limits: Limits, *, in_memory: bool) -> Guarantee:
    if (limits.file_bytes, limits.written_bytes, limits.files) == (None,) * 3:
        return Guarantee(
            "disk",
            "off",
            "no limit is set",
            "Set Limits.file_bytes, written_bytes and files.",
        )
    mechanism = (
        "RLIMIT_FSIZE for each file; the sum of writes and the number of new files are checked "
        "every 50 ms, more often near the limit, and can be exceeded; processes and files that "
        "hide from the check are not counted"
    )
    advice = "Use a work_dir on a file system of limited size."
    if in_memory:
        mechanism += "; the work folder is in memory (tmpfs): what its files hold counts"
        if findings.cgroups.version and limits.memory_bytes is not None:
            mechanism += ", and as the memory of the block that wrote it"
        else:
            advice = "Use a work_dir on a disk, or on a tmpfs of limited size."
    return Guarantee("disk", "partly", mechanism, advice)
