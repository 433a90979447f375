"""What a shell session writes to its shell, and how it finds the end of a command's output."""

from __future__ import annotations

import secrets
import shlex

# The exit code goes to standard output; the folder and the rest of the state to standard error.
# Commands cannot redirect these copies of them.
_DEFINE_END = """\
exec 8>&1 9>&2
__cellblock_end() {
command printf '%s%s%s%s%s' "$2" "$3" "$1" "$2" "$3" >&8
command printf '%s%s%s%s%s' "$2" "$3" "$PWD" "$2" "$3" >&9
{ export -p; set +o; SAVE_FUNCTIONS; } >&9
command printf '%s%s' "$2" "$3" >&9
}
"""


def definitions(program: str) -> str:
    """Return what a new shell is sent first."""
    return _DEFINE_END.replace("SAVE_FUNCTIONS", "declare -f" if program == "bash" else ":")


class Mark:
    """The mark that ends the output of one command, which no command prints by accident."""

    def __init__(self) -> None:
        # `set -x` and `set -v` show the parts, but not the whole.
        self._parts = secrets.token_hex(12), secrets.token_hex(12)
        self.whole = "".join(self._parts).encode()

    def script(self, text: str) -> str:
        """Return the lines that run a command without input, and print the mark.

        `command eval` also runs what is no complete command, and goes on after a syntax error.
        """
        end = f'{{ __cellblock_end "$?" {" ".join(self._parts)}; }} 2>/dev/null'
        # After an open quote, bash takes the next word for an argument, unless a line is empty.
        return f"command eval {shlex.quote(text)} </dev/null 8>&- 9>&-\n\n{end}\n"


class MarkedStream:
    """One stream of a shell, up to the last of `count` marks.

    parts   what came before each mark
    """

    def __init__(self, mark: bytes, count: int) -> None:
        self._mark, self._count = mark, count
        self._pending = bytearray()
        self.parts = list[bytes]()

    @property
    def is_complete(self) -> bool:
        """Whether the last mark has arrived."""
        return len(self.parts) == self._count

    def feed(self, data: bytes) -> bytes:
        """Take what has arrived. Return what of it was before the first mark."""
        self._pending += data
        output = b""
        while not self.is_complete and (at := self._pending.find(self._mark)) >= 0:
            part = self._take(at)
            self._take(len(self._mark))
            if not self.parts:
                output = part
            self.parts.append(part)
        return output if self.parts else self._take(len(self._pending) - self._begun_mark())

    def _begun_mark(self) -> int:
        """Return how many bytes at the end can be the beginning of the mark."""
        sizes = range(min(len(self._mark) - 1, len(self._pending)), 0, -1)
        return next((size for size in sizes if self._pending.endswith(self._mark[:size])), 0)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._pending[:size])
        del self._pending[:size]
        return taken

    def take_rest(self) -> bytes:
        """Return what has arrived after the last mark, or was not yet returned."""
        return self._take(len(self._pending))
