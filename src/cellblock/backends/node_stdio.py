"""Node without walls around it: its output is made to block by a module that it loads first.

An output pipe holds one packet (see `cell.pump`), and Node does not wait for room: it keeps the rest for later, and loses it
when code calls `process.exit`. Behind walls a filter sees to that for every program (see `sandbox.seccomp`); that one would
take `sudo` from plain processes of the caller's.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

_MODULE = Path(__file__).with_name("node_stdio.cjs")


def with_whole_output(environment: Mapping[str, str]) -> dict[str, str]:
    """Give `environment` with the module named in `NODE_OPTIONS`, where there is a Node; see node(1)."""
    if shutil.which("node", path=environment.get("PATH", "")) is None:
        return dict(environment)
    path = str(_MODULE).replace("\\", r"\\").replace('"', r"\"")
    options = [environment.get("NODE_OPTIONS", ""), f'--require "{path}"']
    return {**environment, "NODE_OPTIONS": " ".join(filter(None, options))}
