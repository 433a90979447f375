"""The demo in a real terminal: tmux, at 80 and 200 columns."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")

pytestmark = [
    pytest.mark.usefixtures("sandbox"),
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]


class Tmux:
    """A terminal of `columns` columns with a command in it. `socket` is the server's own socket."""

    def __init__(self, socket: Path, columns: int, command: str) -> None:
        self._tmux = [str(TMUX), "-S", str(socket), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", str(columns), "-y", "50", command)

    def screen(self) -> list[str]:
        """Return the lines on the screen and above it."""
        return self._run("capture-pane", "-p", "-S", "-500").splitlines()

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Wait until `count` lines match `pattern`, and return all lines."""
        while True:
            lines = self.screen()
            if sum(bool(re.search(pattern, line)) for line in lines) >= count:
                return lines
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def _run(self, *arguments: str) -> str:
        argv = [*self._tmux, *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Tmux]]:
    """Yield two terminals with the demo, which stay open when it has ended."""
    with contextlib.ExitStack() as stack:
        found = list[Tmux]()
        for columns in (80, 200):
            command = f"mkdir {columns}; cd {columns}; {sys.executable} -m cellblock chat --demo"
            command += " --save demo.md; read line"
            found.append(Tmux(tmp_path / f"tmux-{columns}", columns, command))
            stack.callback(found[-1].close)
        yield found


def test_the_demo_in_tmux(terminals: list[Tmux], cwd: Path) -> None:
    for terminal in terminals:  # both at once: much of the demo is waiting
        terminal.wait_for(r"\[a\]lways *$")
        terminal.press("y")
    for terminal in terminals:
        terminal.wait_for("^TypeError: cannot unpack")
        terminal.wait_for(r"\[a\]lways *$")
        terminal.press("a")
    for terminal in terminals:
        lines = terminal.wait_for("--- the recording ends here")
        text = "\n".join(lines)
        assert "  7  16.51%  16.67%  #################################" in lines
        assert "--- created coding/mandelbrot.png (13.9 KiB)" in text
        assert re.search("^- .*Mandelbrot set.*: the picture is in `mandelbrot.png`", text, re.M)
        assert text.count("[a]lways") == 2  # each question is on the screen once
        assert not re.search(r"[^\x20-\x7e\n]", text)  # nothing that tmux did not understand
    for columns in ("80", "200"):
        assert "mandelbrot.png" in (cwd / columns / "demo.md").read_text()
