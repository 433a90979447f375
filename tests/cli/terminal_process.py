"""Run the command `cellblock` in a pseudo-terminal, for tests."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.command_server import CommandProcess

_CONTROL_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")
PROMPT = ">>>"


class TerminalCommand:
    """`cellblock` with `arguments`, in a terminal."""

    def __init__(
        self, *arguments: str, environment: dict[str, str] | None = None, columns: int = 200
    ) -> None:
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, columns))
        # This terminal does not answer queries, such as that for the cursor position. Its size is
        # not that of a variable, which other tests may set.
        environment = {
            **{name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES"}},
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **(environment or {}),
        }
        self._process = CommandProcess[bytes](
            list(arguments),
            terminal=True,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
        )
        os.close(slave)
        self._terminal, self._bytes, self._seen = master, b"", 0

    @property
    def output(self) -> str:
        """Everything that was printed so far."""
        return self._bytes.decode(errors="replace")

    @property
    def screen(self) -> str:
        """Everything that was printed so far, without control sequences."""
        return _CONTROL_SEQUENCES.sub("", self._bytes.decode(errors="replace")).replace("\r", "")

    def type_keys(self, text: str) -> None:
        """Press keys: a line ends with Enter, which is `\\r`."""
        os.write(self._terminal, text.encode())

    def press_until(self, key: str, text: str) -> None:
        """Press `key` again and again until the next `text`: a key close to others is no answer."""
        while self.screen.find(text, self._seen) < 0:
            self.type_keys(key)
            pause = time.monotonic() + 1
            while time.monotonic() < pause and self.screen.find(text, self._seen) < 0:
                self._read(0.1)
        self.wait_for(text)

    def wait_for(self, text: str) -> str:
        """Wait for the next `text`, and return everything that was printed before it."""
        try:
            while (found := self.screen.find(text, self._seen)) < 0:
                assert self._read(0.1), f"the command ended without {text!r}"
        except BaseException as error:  # also of the hang guard
            error.add_note(f"{text!r} was not printed: {self.screen[self._seen :]!r}")
            raise
        before, self._seen = self.screen[self._seen : found], found + len(text)
        return before

    def run_block(self, *lines: str) -> str:
        """Type a block, wait for the next prompt, and return what was printed in between."""
        self.type_keys("\r".join(lines) + "\r")
        self.wait_for(lines[-1].strip() or "... ")
        return self.wait_for(f"\n{PROMPT}")

    def wait(self) -> int:
        """Wait for the end of the command and return its exit code."""
        while self._read(0.1):
            pass
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def child_pids(self) -> list[int]:
        """Return the process IDs of the command's children."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]

    def _read(self, seconds: float) -> bool:
        """Read available output for up to `seconds`. Return False at its end."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # the command has closed the terminal
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


def is_png(path: Path) -> bool:
    """Return True if `path` is a PNG file with content."""
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 1000
