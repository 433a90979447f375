"""The ways in which terminals show pictures: kitty's, iTerm's and sixel."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping

from ....models.image import Image

if sys.platform != "win32":
    import termios
    import tty

_CHUNK = 4096  # the most that kitty reads in one piece
_QUERY_SECONDS = 0.3
_DEVICE_ATTRIBUTES = re.compile(rb"\x1b\[\?([\d;]*)c")
_SIXEL = b"4"


class PictureProtocol(ABC):
    """A way to show a picture."""

    @abstractmethod
    def encode(self, image: Image) -> str:
        """Return what to write to the terminal; "" if it cannot show this picture."""


class Kitty(PictureProtocol):
    """kitty, Ghostty."""

    def encode(self, image: Image) -> str:
        """See `PictureProtocol`. Only PNG, unless Pillow can convert the picture."""
        data = _as_png(image)
        return "".join(_kitty_chunks(base64.b64encode(data).decode())) if data else ""


class ITerm(PictureProtocol):
    """iTerm2, WezTerm."""

    def encode(self, image: Image) -> str:
        """See `PictureProtocol`."""
        size = len(image.data)
        return f"\x1b]1337;File=inline=1;size={size}:{image.to_base64()}\a"


class Sixel(PictureProtocol):
    """Foot, mlterm, xterm, tmux. Needs Pillow."""

    def encode(self, image: Image) -> str:
        """See `PictureProtocol`."""
        try:
            from .sixel import encode_sixel
        except ImportError:
            return ""
        try:
            return encode_sixel(image.data)
        except (OSError, ValueError):  # a damaged picture
            return ""


def find_protocol(environment: Mapping[str, str]) -> PictureProtocol | None:
    """Return how this terminal shows pictures; None if it does not.

    Asks the terminal if its name does not tell. tmux passes on nothing but sixel.
    """
    program = environment.get("TERM_PROGRAM", "")
    term = environment.get("TERM", "")
    if not (environment.get("TMUX") or term.startswith(("tmux", "screen"))):
        if term in ("xterm-kitty", "xterm-ghostty"):
            return Kitty()
        if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
            return ITerm()
    return Sixel() if term != "dumb" and _SIXEL in _device_attributes() else None


def _device_attributes() -> list[bytes]:
    """Ask the terminal for its attributes. Return none if it does not answer soon."""
    if sys.platform == "win32":
        return []
    try:
        with _raw_terminal() as descriptor:
            os.write(sys.stdout.fileno(), b"\x1b[c")
            answer, deadline = b"", time.monotonic() + _QUERY_SECONDS
            while not (found := _DEVICE_ATTRIBUTES.search(answer)):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                    return []
                answer += os.read(descriptor, 256)
            return found[1].split(b";")
    except (OSError, ValueError, termios.error):
        return []


@contextlib.contextmanager
def _raw_terminal() -> Generator[int]:
    assert sys.platform != "win32"
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)  # keeps what was typed
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _kitty_chunks(data: str) -> Iterator[str]:
    chunks = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    for number, chunk in enumerate(chunks):
        # q=2: kitty must not answer, because the answer is not read.
        control = "a=T,f=100,q=2," if number == 0 else ""
        is_last = number == len(chunks) - 1
        yield f"\x1b_G{control}m={0 if is_last else 1};{chunk}\x1b\\"


def _as_png(image: Image) -> bytes:
    if image.mime_type == "image/png":
        return image.data
    try:
        from .sixel import to_png

        return to_png(image.data)
    except (ImportError, OSError, ValueError):
        return b""
