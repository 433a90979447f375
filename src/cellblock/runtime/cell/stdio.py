"""What a script finds as standard output and error: unbuffered, as under ``python -u``, and nothing of it lost."""

from __future__ import annotations

import io
import sys
from typing import Any


class Stream(io.FileIO):
    """A descriptor that takes whole writes: where a signal's handler runs meanwhile, the kernel stops after a part.

    `TextIOWrapper` never asks how much was written, so that the rest would be gone. A `BufferedWriter` goes on as well, but
    refuses the handler's own `print`.
    """

    def write(self, data: Any) -> Any:  # anything with a buffer
        written = io.FileIO.write(self, data)
        rest = memoryview(data).cast("B")[written:]
        while rest and written is not None:  # None: it would block, and somebody has asked for that
            more = io.FileIO.write(self, rest)
            if more is None:
                break
            written, rest = written + more, rest[more:]
        return written

    def seekable(self) -> bool:
        """Say that it is a pipe, whatever it is while this is made: it must never be asked for its position."""
        return False


def text_stream(
    descriptor: int, name: str, *, encoding: str = "utf-8", errors: str = "backslashreplace"
) -> io.TextIOWrapper:
    """Make the text stream that writes to `descriptor`, as the interpreter makes ``sys.stdout``."""
    raw: Any = Stream(descriptor, "wb", closefd=False)
    raw.name = name
    text: Any = io.TextIOWrapper(raw, encoding, errors, newline="\n", write_through=True)
    text.mode = "w"
    return text


def renew() -> None:
    """Make standard output and error anew, before anybody has a reference to those that the interpreter made."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        old: Any = getattr(sys, name)
        new = text_stream(descriptor, f"<{name}>", encoding=old.encoding, errors=old.errors)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
