"""Blocking output for Node.js on the host, through a module that Node loads first.

An output pipe holds one packet (see `runtime.server.pipes`). Node does not wait for room in it: it
keeps the rest in memory, and loses it when the code calls `process.exit`. In a sandbox a seccomp
filter prevents this for every program (see `sandbox.seccomp`). On the host that filter would
disable `sudo` for the caller's processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

_MODULE = Path(__file__).with_name("node_stdio.cjs")


def with_blocking_output(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with the module added to `NODE_OPTIONS`, if Node is installed.

    See node(1).
    """
    if shutil.which("node", path=environment.get("PATH", "")) is None:
        return dict(environment)
    path = str(_MODULE).replace("\\", r"\\").replace('"', r"\"")
    options = [environment.get("NODE_OPTIONS", ""), f'--require "{path}"']
    return {**environment, "NODE_OPTIONS": " ".join(filter(None, options))}
