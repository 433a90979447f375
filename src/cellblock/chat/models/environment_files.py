"""Files with environment variables (`.env`)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...text_files import decode_text

_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*
    (?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<plain>[^\n]*?))\s*(?:(?:^|\s)\#.*)?$""",
    re.VERBOSE,
)


def find_environment_file(name: str = ".env") -> Path | None:
    """Return the file `name` in the current folder or the nearest one above; None if none."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / name).is_file():
            return folder / name
    return None


def load_environment_file(path: Path) -> None:
    """Set the variables in the file `path` that are not set yet."""
    for name, value in parse_environment(decode_text(path.read_bytes(), str(path))).items():
        os.environ.setdefault(name, value)


def parse_environment(text: str) -> dict[str, str]:
    """Return the variables in `text`: lines `NAME=value`, with quotes or a comment if wanted."""
    matches = filter(None, map(_LINE.match, text.splitlines()))
    return {
        match["name"]: match["single"] or match["double"] or match["plain"] or ""
        for match in matches
    }
