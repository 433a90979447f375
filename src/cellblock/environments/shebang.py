"""The first lines of scripts that a given Python runs."""

from __future__ import annotations

import re
import shlex

# The first lines of an installed Python script. The longer form is for paths that are long, contain
# spaces, or may change.
_SHEBANG = re.compile(rb"\A#!(?:/bin/sh\n'''exec' [^\n]*\n' '''|[^\n]*python[^/\n]*)\n")
_MAX_SHEBANG_BYTES = 127  # of a first line that every kernel accepts


def shebang_for(python: str) -> str:
    """Return the first lines of a script that `python` runs."""
    shebang = f"#!{python}\n"
    if len(shebang.encode()) <= _MAX_SHEBANG_BYTES and not re.search(r"\s", python):
        return shebang
    return f"#!/bin/sh\n'''exec' {shlex.quote(python)} \"$0\" \"$@\"\n' '''\n"


def with_shebang(python: str, program: bytes) -> bytes:
    """Return `program` with the first lines for `python`, if it is a Python script."""
    return _SHEBANG.sub(lambda _: shebang_for(python).encode(), program, count=1)
