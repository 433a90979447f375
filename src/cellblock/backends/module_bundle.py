"""Shipment: the modules of the cell server, for where nothing of ours is installed."""

from __future__ import annotations

import functools
import json
import marshal
import zlib
from importlib.util import MAGIC_NUMBER

from .transport import PACKAGE

MARK_BYTES = 1 + len(
    MAGIC_NUMBER
)  # a zero, and which code a Python understands: what `boot.CONTAINER` says first


def shipment(mark: bytes) -> bytes:
    """Give the modules for the Python that has said `mark`: a letter for the kind, the length in four bytes, the data.

    To compile the source takes a good part of a server's start, and where the Python is as ours, it need not.
    """
    kind, data = (b"C", compiled()) if mark[1:] == MAGIC_NUMBER else (b"S", source())
    return kind + len(data).to_bytes(4, "big") + data


@functools.cache
def compiled() -> bytes:
    """Give the modules as code of our Python. Takes a tenth of a second, once for a process."""
    code = {
        name: compile(text, f"<{name}>", "exec", dont_inherit=True)
        for name, text in _modules().items()
    }
    return zlib.compress(
        marshal.dumps({name: marshal.dumps(module) for name, module in code.items()})
    )


@functools.cache
def source() -> bytes:
    """Give the modules as their source."""
    return zlib.compress(json.dumps(_modules()).encode())


def _modules() -> dict[str, str]:
    modules = {"cellblock": ""}
    for path in sorted((PACKAGE / "runtime").rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names = parts[:-1] if parts[-1] == "__init__" else parts
        modules[".".join(("cellblock", *names))] = path.read_text()
    return modules
