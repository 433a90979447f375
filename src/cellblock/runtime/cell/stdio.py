"""Standard output and error of a script: unbuffered, as with ``python -u``, and without losses."""

from __future__ import annotations

import io
import sys
from typing import Any


class UnbufferedOutput(io.FileIO):
    """A raw stream that writes everything, also if a signal interrupts the write after a part.

    `TextIOWrapper` ignores how much was written, so that the rest would be lost. A `BufferedWriter`
    would retry as well, but does not allow a `print` in the signal handler.
    """

    def write(self, data: Any) -> Any:  # any object with a buffer
        """Write all of `data`. Return its size, or None if a non-blocking write would block."""
        written = io.FileIO.write(self, data)
        rest = memoryview(data).cast("B")[written:]
        while rest and written is not None:
            more = io.FileIO.write(self, rest)
            if more is None:
                break
            written, rest = written + more, rest[more:]
        return written

    def __repr__(self) -> str:
        """Return the repr of the interpreter's own stream, which names its type since 3.13."""
        return io.FileIO.__repr__(self).replace("<UnbufferedOutput ", "<_io.FileIO ", 1)

    def seekable(self) -> bool:
        """Return False, as for a pipe: `TextIOWrapper` must not ask for a position."""
        return False


def text_stream(
    descriptor: int, name: str, *, encoding: str = "utf-8", errors: str = "backslashreplace"
) -> io.TextIOWrapper:
    """Return a text stream that writes to `descriptor`, like the interpreter's ``sys.stdout``."""
    raw: Any = UnbufferedOutput(descriptor, "wb", closefd=False)
    raw.name = name
    text: Any = io.TextIOWrapper(raw, encoding, errors, newline="\n", write_through=True)
    text.mode = "w"
    return text


def replace_standard_streams() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr``, before other modules have references to them."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        old: Any = getattr(sys, name)
        new = text_stream(descriptor, f"<{name}>", encoding=old.encoding, errors=old.errors)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
