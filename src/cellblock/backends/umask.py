"""Refuse a file mode creation mask that makes new files useless; see umask(2)."""

from __future__ import annotations

import contextlib
import re

from ..errors import BackendError

_MASK = re.compile(r"^Umask:\s*([0-7]+)$", re.MULTILINE)
_OWNER = 0o700


def check_umask() -> None:
    """Raise `BackendError` if this process denies itself the use of the files that it creates."""
    text = ""
    with contextlib.suppress(OSError):  # not Linux: `os.umask` would change it for all threads
        with open("/proc/self/status", errors="replace") as file:
            text = file.read()
    found = _MASK.search(text)
    if found is not None and int(found[1], 8) & _OWNER:
        raise BackendError(
            f"The umask of this process is {found[1]}, which denies it its own new files. "
            "Call os.umask(0o077) before an executor starts, or run `umask 077` in the shell."
        )
