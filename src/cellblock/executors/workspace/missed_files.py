"""Find the files that blocks asked for in vain, though the caller has them in its own folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

_FAILURE = re.compile(
    r"no such file|not found|no files found|cannot find|does not exist|enoent"
    r"|(?:cannot|can't|unable to) (?:open|read|access|stat)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_PATH = re.compile(r"[^\s'\"()\[\],;:<>]*[./][^\s'\"()\[\],;:<>]*")
_MAX_LINE = 2000  # characters
_MAX_NAMES = 3


def missed_files(output: str, work_dir: str, inner_work_dir: str = "/workspace") -> list[str]:
    """Return files of the current folder that are missing in `work_dir`, by what `output` says.

    The names are relative to the current folder. Blocks see `work_dir` as `inner_work_dir`.
    """
    current, shared = os.getcwd(), os.path.realpath(work_dir)
    found = dict[str, None]()
    for line in output.splitlines():
        if _FAILURE.search(line) and len(line) <= _MAX_LINE:
            names = (
                _below(current, name.removeprefix(f"{inner_work_dir}/")) for name in _names(line)
            )
            if first := next((name for name in names if _is_missed(name, current, shared)), None):
                found[first] = None
    return list(found)[:_MAX_NAMES]


def _below(folder: str, name: str) -> str:
    """Return `name` relative to `folder`; blocks may have looked for it above their own."""
    return re.sub(r"^(\.\./)+", "", os.path.relpath(os.path.join(folder, name), folder))


def _names(line: str) -> Iterator[str]:
    """Yield what could be the name of a file in a message."""
    for quoted in _QUOTED.finditer(line):
        yield quoted[1] or quoted[2]
    yield from line.split(": ")
    for path in _PATH.finditer(line):
        yield path[0].rstrip(".")


def _is_missed(name: str, current: str, shared: str) -> bool:
    with contextlib.suppress(ValueError, OSError):  # not the name of a file
        return (
            name not in ("", ".", "..")
            and os.path.exists(os.path.join(current, name))
            and not os.path.lexists(os.path.join(shared, name))
            and not os.path.samefile(os.path.join(current, name), shared)
        )
    return False
