"""What a cell does to itself between fork and user code. After `apply` there is no way back.

Only values come in: paths, numbers and a finished filter program. Which of them are right for this machine was found out
outside, where the host can be looked at. All that can be made in advance is made by `prepare`, in the process that blocks
are forked from: every page of memory that a block's process touches for the first time costs it a copy.
"""

from __future__ import annotations

import binascii
import os
import resource
import struct
from collections.abc import Callable, Iterable
from typing import Any

from ..linux import syscalls

_RULE_PATH_BENEATH = 1
_OF_FILES = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl: what a rule on a single file may hold
_HANDLED_BYTES = {
    1: 8,
    2: 8,
    3: 8,
    4: 16,
    5: 16,
}  # of the ruleset's attributes, by version; later ones have all


class Confinement:
    """How far a cell shuts itself in. Empty parts are left alone.

    rlimits         (resource, value) pairs, soft and hard alike
    filter_program  a seccomp program
    landlock        rules as (path, access mask), with the masks of what is handled and scoped; see `landlock(7)`
    drop            give up capabilities and the way to new ones
    sacrifice       be what the kernel ends first when memory runs out
    """

    def __init__(
        self,
        *,
        rlimits: Iterable[tuple[int, int]] = (),
        filter_program: bytes = b"",
        landlock_rules: Iterable[tuple[str, int]] = (),
        landlock_handled: int = 0,
        landlock_scoped: int = 0,
        landlock_net: int = 0,
        landlock_abi: int = 0,
        drop: bool = False,
        sacrifice: bool = False,
    ) -> None:
        self.rlimits, self.filter_program, self.drop = list(rlimits), filter_program, drop
        self.sacrifice = sacrifice
        self.landlock_rules, self.landlock_abi = list(landlock_rules), landlock_abi
        self.landlock_handled, self.landlock_net, self.landlock_scoped = (
            landlock_handled,
            landlock_net,
            landlock_scoped,
        )
        self._limits: list[tuple[int, tuple[int, int]]] = []
        self._steps: list[Callable[[], object]] = []
        self._ruleset = -1

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Confinement:
        """Make it from the JSON values of a place's specification."""
        values = dict(spec)
        values["filter_program"] = binascii.a2b_base64(values.get("filter_program", ""))
        for name in ("rlimits", "landlock_rules"):
            values[name] = [tuple(pair) for pair in values.get(name, [])]
        return cls(**values)

    def prepare(self) -> None:
        """Make what `apply` needs; again when what the rules' paths name has changed. Raises `OSError`."""
        if self._ruleset >= 0:
            os.close(self._ruleset)
            self._ruleset = -1
        self._limits = [(what, _limit(what, value)) for what, value in self.rlimits]
        self._steps = []
        if self.sacrifice:
            self._steps.append(_offer)
        if self.drop:
            self._steps.append(
                syscalls.Call("prctl", "no_new_privs", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            )
        if self.landlock_handled or self.landlock_scoped:
            self._ruleset = self._make_ruleset()
            restrict = syscalls.LANDLOCK_RESTRICT_SELF
            self._steps.append(
                syscalls.Call("syscall", "landlock_restrict_self", restrict, self._ruleset, 0)
            )
        if self.drop:
            self._steps.append(syscalls.capability_call(0, 0, 0))
            # Its own /proc/self must be readable again; the first process of the cell stays closed.
            self._steps.append(
                syscalls.Call("prctl", "dumpable", syscalls.PR_SET_DUMPABLE, 1, 0, 0, 0)
            )
        if self.filter_program:
            self._steps.append(syscalls.filter_call(self.filter_program))

    def apply(self) -> None:
        """Shut this process in for good. Raises `OSError` when a part cannot be applied."""
        for what, limit in self._limits:
            resource.setrlimit(what, limit)
        for step in self._steps:
            step()
        if self._ruleset >= 0:
            os.close(self._ruleset)

    def _make_ruleset(self) -> int:
        attributes = struct.pack(
            "<3Q", self.landlock_handled, self.landlock_net, self.landlock_scoped
        )
        attributes = attributes[: _HANDLED_BYTES.get(self.landlock_abi, 24)]
        number = syscalls.LANDLOCK_CREATE_RULESET
        ruleset = syscalls.syscall(
            number, attributes, len(attributes), 0, name="landlock_create_ruleset"
        )
        for path, access in self.landlock_rules:
            _allow(ruleset, path, access)
        return ruleset


def _limit(what: int, value: int) -> tuple[int, int]:
    _, hard = resource.getrlimit(what)
    # A limit can be lowered but not raised: one that is tighter already stays.
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def _offer() -> None:
    syscalls.adjust_memory_score(1000)


def outlive_waiting() -> None:
    """Where memory is shared: have a block's process, which has its job now, ended after those that wait for one."""
    try:
        syscalls.adjust_memory_score(900)
    except OSError:
        pass  # a kernel where this goes up alone


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            access &= _OF_FILES
        rule = struct.pack("<Qi", access, descriptor)
        number = syscalls.LANDLOCK_ADD_RULE
        syscalls.syscall(
            number, ruleset, _RULE_PATH_BENEATH, rule, 0, name=f"landlock_add_rule {path}"
        )
    finally:
        os.close(descriptor)
