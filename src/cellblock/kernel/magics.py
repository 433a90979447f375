"""The magics `%checkpoint`, `%restore`, `%checkpoints` and `%drop`, which the kernel carries out.

A block cannot copy the session that runs it, so these lines stand before or after the code of a
cell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import CheckpointError
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from .session_hooks import MAGICS

_LINE = re.compile(rf"%(?P<name>{'|'.join(MAGICS)})(?:[ \t]+(?P<argument>\S.*?))?[ \t]*")

_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_NAME_START = re.compile(r"%(?:checkpoint|restore|drop)[ \t]+(|\S.*)")


@dataclass(frozen=True)
class Magic:
    """One line, such as `%checkpoint before`."""

    name: str
    argument: str


@dataclass(frozen=True)
class CellParts:
    """A cell: the magics before and after its code. The code keeps its line numbers."""

    before: tuple[Magic, ...]
    code: str
    after: tuple[Magic, ...]


def split_cell(text: str) -> CellParts:
    """Return the parts of a cell."""
    lines = text.split("\n")
    before = _take_magics(lines, range(len(lines)))
    after = _take_magics(lines, range(len(lines) - 1, -1, -1))
    code = "\n".join(lines)
    return CellParts(tuple(before), code if code.strip() else "", tuple(reversed(after)))


def _take_magics(lines: list[str], order: range) -> list[Magic]:
    """Replace the magics at one end of `lines` by empty lines, and return them."""
    found = list[Magic]()
    for index in order:
        if (match := _LINE.fullmatch(lines[index])) is not None:
            found.append(Magic(match["name"], _COMMENT.sub("", match["argument"] or "")))
            lines[index] = ""
        elif lines[index].strip():
            break
    return found


async def run_magic(session: SandboxSessionCodeExecutor, magic: Magic) -> str:
    """Carry out a magic and return what to print.

    Raise `CellblockError`, or `ValueError` for a name that is not allowed.
    """
    match magic.name:
        case "checkpoint":
            return await _checkpoint(session, magic.argument)
        case "restore":
            return await _restore(session, _choose(session, magic))
        case "drop":
            await session.drop(_choose(session, magic))
            return f"Dropped checkpoint {magic.argument}.\n"
        case _:
            names = [checkpoint.name for checkpoint in session.checkpoints]
            return "".join(f"{name}\n" for name in names) or "There is no checkpoint.\n"


def complete_magic(
    session: SandboxSessionCodeExecutor, code: str, cursor: int
) -> tuple[int, list[str]] | None:
    """Return where the name of a checkpoint at `cursor` starts, and what Tab offers for it.

    Return None if the cursor is not at such a name.
    """
    line = code[:cursor].rpartition("\n")[2]
    if (match := _NAME_START.fullmatch(line)) is None:
        return None
    names = [checkpoint.name for checkpoint in session.checkpoints]
    return cursor - len(match[1]), [name for name in names if name.startswith(match[1])]


def _choose(session: SandboxSessionCodeExecutor, magic: Magic) -> str:
    """Return the name of the checkpoint that a line means. Raise `CheckpointError`."""
    names = [checkpoint.name for checkpoint in session.checkpoints]
    if not names:
        raise CheckpointError("There is no checkpoint. %checkpoint makes one.")
    if magic.argument or magic.name == "restore":
        return magic.argument or names[-1]
    raise CheckpointError(f"%drop needs a name, one of these: {', '.join(map(repr, names))}.")


async def _checkpoint(session: SandboxSessionCodeExecutor, name: str) -> str:
    """Make a checkpoint. One with the same name is replaced, so that a cell can run again."""
    limit, names = session.limits.checkpoints, [each.name for each in session.checkpoints]
    if limit is not None and name not in names and len(names) >= limit:
        raise CheckpointError(
            f"There can be at most {limit} checkpoints. Delete one with %drop NAME."
        )
    checkpoint = await session.checkpoint(name or None, replace=True)
    return f"Checkpoint {checkpoint.name}: variables and files are saved.\n"


async def _restore(session: SandboxSessionCodeExecutor, name: str) -> str:
    await session.restore(name)
    return f"Variables and files are as they were at checkpoint {name}.\n"
