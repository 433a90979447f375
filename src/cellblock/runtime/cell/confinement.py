"""Confine a cell's process between fork and user code. `apply` cannot be undone.

The values (paths, numbers, a finished filter program) come from outside, where the features of the
machine are known. `prepare` does as much as possible in advance, in the process that blocks are
forked from: each page of memory that a block's process writes for the first time is copied.
"""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Callable

from ..linux import syscalls
from ..spec import ConfinementSpec

_RULE_PATH_BENEATH = 1
# Execute, write, read, truncate, ioctl: the access rights that a rule for a single file may have.
_FILE_ACCESS = 0b1100_0000_0000_0111
# Size of the ruleset's attributes by ABI version. Later versions have all of them.
_ATTRIBUTE_BYTES = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}


class Confinement:
    """The restrictions of a cell, as `spec` describes them."""

    def __init__(self, spec: ConfinementSpec) -> None:
        self._spec, self.oom_first = spec, spec.oom_first
        self._limits: list[tuple[int, tuple[int, int]]] = []
        self._steps: list[Callable[[], object]] = []
        # Makes its own /proc/self readable again. That of the first process stays unreadable.
        self._show = syscalls.PreparedCall(
            "prctl", "dumpable", syscalls.PR_SET_DUMPABLE, 1, 0, 0, 0
        )
        self._drop = syscalls.capset_call(0, 0, 0)
        self._ruleset = -1

    def prepare(self) -> None:
        """Prepare what `apply` needs. Raise `OSError`.

        Must be called again when a mount has changed what the paths of the rules refer to.
        """
        if self._ruleset >= 0:
            os.close(self._ruleset)
            self._ruleset = -1
        self._limits = [(what, _limit(what, value)) for what, value in self._spec.rlimits]
        self._steps = []
        if self.oom_first:
            self._steps.append(_raise_oom_score)
        if self._spec.drop:
            self._steps.append(
                syscalls.PreparedCall(
                    "prctl", "no_new_privs", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0
                )
            )
        if self._spec.landlock.handled or self._spec.landlock.scoped:
            self._ruleset = self._make_ruleset()
            self._steps.append(self._restrict())
        if self._spec.drop:
            self._steps.append(self._drop)
            self._steps.append(self._show)
        if self._spec.filter_program:
            self._steps.append(syscalls.seccomp_call(self._spec.filter_program))

    def _restrict(self) -> syscalls.PreparedCall:
        restrict = syscalls.LANDLOCK_RESTRICT_SELF
        return syscalls.PreparedCall(
            "syscall", "landlock_restrict_self", restrict, self._ruleset, 0
        )

    def limit(self) -> None:
        """Set the limits of resources. They are for this process and its children."""
        for what, limit in self._limits:
            resource.setrlimit(what, limit)

    def apply(self, *, is_hidden: bool = False, capabilities: int = 0) -> None:
        """Apply all restrictions for good. Raise `OSError` if one cannot be applied.

        `is_hidden`: the process runs no user code, and stays unreadable for those that do. It must
        never be readable: what they have opened meanwhile stays open. `capabilities`: the mask of
        those that it keeps.
        """
        self.limit()
        for step in self._steps:
            if step is self._drop and capabilities:
                syscalls.capset_call(capabilities, capabilities, 0)()
            elif step is not self._show or not is_hidden:
                step()
        if self._ruleset >= 0:
            os.close(self._ruleset)

    def _make_ruleset(self) -> int:
        rules = self._spec.landlock
        attributes = struct.pack("<3Q", rules.handled, rules.net, rules.scoped)
        attributes = attributes[: _ATTRIBUTE_BYTES.get(rules.abi, 24)]
        number = syscalls.LANDLOCK_CREATE_RULESET
        ruleset = syscalls.syscall(
            number, attributes, len(attributes), 0, name="landlock_create_ruleset"
        )
        for path, access in rules.rules:
            _allow(ruleset, path, access)
        return ruleset


def _limit(what: int, value: int) -> tuple[int, int]:
    _, hard = resource.getrlimit(what)
    # A hard limit can only be lowered.
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def _raise_oom_score() -> None:
    syscalls.set_oom_score(1000)


def lower_oom_score() -> None:
    """Let the OOM killer pick this process, which has a block, after those that wait for one."""
    try:
        syscalls.set_oom_score(900)
    except OSError:
        pass  # this kernel does not allow lowering it


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            access &= _FILE_ACCESS
        rule = struct.pack("<Qi", access, descriptor)
        number = syscalls.LANDLOCK_ADD_RULE
        syscalls.syscall(
            number, ruleset, _RULE_PATH_BENEATH, rule, 0, name=f"landlock_add_rule {path}"
        )
    finally:
        os.close(descriptor)
