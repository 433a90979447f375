"""The command `cellblock` at a terminal of its own, for tests: typed to, and read from."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.cli_process import COMMAND

# The new process takes the terminal as its own, so that Ctrl-C is a signal to it, and becomes the command.
_BECOME = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")
_PATIENCE = 15.0
PROMPT = ">>>"


class TerminalCommand:
    """`cellblock` with `arguments`, in a terminal. Everything that it shows is kept in `shown`, without colours."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, 200))
        # Nobody here answers a terminal's questions.
        environment = {
            **os.environ,
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **(environment or {}),
        }
        argv = [sys.executable, "-c", _BECOME, *COMMAND, *arguments]
        self._process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._terminal, self._bytes, self._seen = ours, b"", 0

    @property
    def shown(self) -> str:
        return _CODES.sub("", self._bytes.decode(errors="replace")).replace("\r", "")

    def type(self, text: str) -> None:
        """Press keys: a line ends with Enter, which is `\\r`."""
        os.write(self._terminal, text.encode())

    def see(self, text: str) -> str:
        """Wait until `text` is shown, after what was waited for before; give all that was shown up to it."""
        deadline = time.monotonic() + _PATIENCE
        while (found := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, (
                f"{text!r} was not shown: {self.shown[self._seen :]!r}"
            )
            assert self._read(0.1), (
                f"it ended and {text!r} was not shown: {self.shown[self._seen :]!r}"
            )
        before, self._seen = self.shown[self._seen : found], found + len(text)
        return before

    def run(self, *lines: str) -> str:
        """Type a block, wait for the next prompt, and give what was shown between."""
        self.type("\r".join(lines) + "\r")
        self.see(lines[-1].strip() or "... ")
        return self.see(f"\n{PROMPT}")

    def ended(self) -> int:
        """Wait until it ends, and give its exit code."""
        deadline = time.monotonic() + _PATIENCE
        while self._read(0.1):
            assert time.monotonic() < deadline, f"it did not end: {self.shown[self._seen :]!r}"
        return self._process.wait(_PATIENCE)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def children(self) -> list[int]:
        """Give the ids of the command's own processes."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]

    def _read(self, seconds: float) -> bool:
        """Read what comes; tell whether there may be more."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # nobody holds the other end any more
            return False
        self._bytes += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


def picture(path: Path) -> bool:
    """Tell whether the file at `path` is a PNG of some size."""
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 1000
