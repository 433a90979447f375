"""What a cell does to itself between fork and user code. After `apply` there is no way back.

Only values come in: paths, numbers and a finished filter program. Which of them are right for this machine was found out
outside, where the host can be looked at.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import resource
import struct
from dataclasses import dataclass, field
from typing import Any

from . import kernel

_RULE_PATH_BENEATH = 1
_OF_FILES = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl: what a rule on a single file may hold


@dataclass(frozen=True)
class Confinement:
    """How far a cell shuts itself in. Empty or `None` parts are left alone.

    rlimits         (resource, value) pairs, soft and hard alike
    filter_program  a seccomp program
    landlock        rules as (path, access mask), with the masks of what is handled and scoped; see `landlock(7)`
    drop            give up capabilities and the way to new ones
    """

    rlimits: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    filter_program: bytes = b""
    landlock_rules: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    landlock_handled: int = 0
    landlock_scoped: int = 0
    landlock_net: int = 0
    landlock_abi: int = 0
    drop: bool = False

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Confinement:
        """Make it from the JSON values of a place's specification."""
        values = dict(spec)
        values["filter_program"] = base64.b64decode(values.get("filter_program", ""))
        for name in ("rlimits", "landlock_rules"):
            values[name] = [tuple(pair) for pair in values.get(name, [])]
        return cls(**values)

    def apply(self) -> None:
        """Shut this process in for good. Raises `OSError` when a part cannot be applied."""
        for what, value in self.rlimits:
            _limit(what, value)
        if self.drop:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if self.landlock_handled:
            self._restrict_files()
        if self.drop:
            for capability in kernel.CELL_CAPABILITIES:
                with contextlib.suppress(PermissionError):  # a process that holds none; no_new_privs keeps it so
                    kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
            kernel.set_capabilities(0, 0, 0)
            # Its own /proc/self must be readable again; the first process of the cell stays closed.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        if self.filter_program:
            kernel.install_filter(self.filter_program)

    def _restrict_files(self) -> None:
        fields = [self.landlock_handled, self.landlock_net, self.landlock_scoped]
        sizes = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
        attributes = struct.pack(f"<{len(fields)}Q", *fields)[: 8 * sizes.get(self.landlock_abi, 3)]
        ruleset = kernel.syscall(
            kernel.LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0, name="landlock_create_ruleset"
        )
        try:
            for path, access in self.landlock_rules:
                _allow(ruleset, path, access)
            kernel.syscall(kernel.LANDLOCK_RESTRICT_SELF, ruleset, 0, name="landlock_restrict_self")
        finally:
            os.close(ruleset)


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    # A limit can be lowered but not raised: one that is tighter already stays.
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            access &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("<Qi", access, descriptor), 12)
        kernel.syscall(
            kernel.LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0, name=f"landlock_add_rule {path}"
        )
    finally:
        os.close(descriptor)
