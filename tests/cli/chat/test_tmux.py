"""The demo in a real terminal: tmux, at 80 and 200 columns."""

from __future__ import annotations

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


@pytest.fixture(params=[80, 200])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tmux]:
    """A terminal with the demo; it stays open when the demo has ended."""
    command = f"{sys.executable} -m cellblock chat --demo --save demo.md; read line"
    terminal = Tmux(tmp_path / "tmux", request.param, command)
    yield terminal
    terminal.close()


def test_the_demo_in_tmux(terminal: Tmux, cwd: Path) -> None:
    terminal.wait_for(r"\[a\]lways *$")
    terminal.press("y")
    terminal.wait_for("^TypeError: cannot unpack")
    terminal.wait_for(r"\[a\]lways *$")
    terminal.press("a")
    lines = terminal.wait_for("--- the recording ends here")
    text = "\n".join(lines)
    assert "  7  16.51%  16.67%  #################################" in lines
    assert "--- created coding/mandelbrot.png (13.9 KiB)" in text
    assert re.search("^- .*Mandelbrot set.*: the picture is in `mandelbrot.png`", text, re.M)
    assert text.count("[a]lways") == 2  # each question is on the screen once
    assert not re.search(r"[^\x20-\x7e\n]", text)  # nothing that tmux did not understand
    assert "mandelbrot.png" in (cwd / "demo.md").read_text()
