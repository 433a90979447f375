"""Show the aligned field lists of our docstrings as lists on the site.

A docstring describes parameters and fields like this, with two or more blanks after the name:

    timeout    seconds that one block may run
    work_dir   the folder that blocks share,
               made when missing
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_FIELD = re.compile(r"([\w.`]+(?:, [\w.`]+)*) {2,}(\S.*)")


class FieldLists(griffe.Extension):
    """Rewrite each docstring before it is rendered as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of `obj`."""
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(
                _with_lists(paragraph) for paragraph in obj.docstring.value.split("\n\n")
            )


def _with_lists(paragraph: str) -> str:
    lines = textwrap.dedent(paragraph).split("\n")
    written: list[str] = []
    for line in lines:
        if field := _FIELD.fullmatch(line):
            if not any(item.startswith("- ") for item in written):
                written.append("")  # a list begins a paragraph of its own
            name = ", ".join(f"`{part.strip('`')}`" for part in field[1].split(", "))
            written.append(f"- {name}: {field[2]}")
        elif written and written[-1].startswith(("- ", "  ")) and line.startswith("  "):
            written.append("  " + line.strip())
        else:
            written.append(line)
    return "\n".join(written)
