"""Shipment: the modules of the cell server, for where nothing of ours is installed."""

from __future__ import annotations

import functools
import json
import marshal
import zlib
from importlib.util import MAGIC_NUMBER

from .link import PACKAGE


@functools.cache
def shipment() -> bytes:
    """Give the modules, as `boot.CONTAINER` takes them from its standard input.

    Three parts, each behind its length in four bytes: the mark of our Python's code, the modules as such code, and their
    source. To compile the source takes a good part of a server's start, and where the Python is the same, it need not.
    Takes a tenth of a second, once for a process.
    """
    names = {"cellblock": "", "cellblock.cell": ""}
    sources = {**names, **{f"cellblock.cell.{path.stem}": path.read_text() for path in (PACKAGE / "cell").glob("[a-z]*.py")}}
    compiled = {name: marshal.dumps(compile(sources[name], f"<{name}>", "exec", dont_inherit=True)) for name in sources}
    parts = (MAGIC_NUMBER, zlib.compress(marshal.dumps(compiled)), zlib.compress(json.dumps(sources).encode()))
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
