"""The magics `%checkpoint`, `%restore`, `%checkpoints` and `%drop`, which the kernel carries out.

A block cannot copy the session that runs it, so these lines stand before or after the code of a
cell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .session import KernelSession
from .session_hooks import MAGICS

_LINE = re.compile(rf"%(?P<name>{'|'.join(MAGICS)})(?:[ \t]+(?P<argument>\S.*?))?[ \t]*")


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
            found.append(Magic(match["name"], match["argument"] or ""))
            lines[index] = ""
        elif lines[index].strip():
            break
    return found


async def run_magic(session: KernelSession, magic: Magic) -> str:
    """Carry out a magic and return what to print.

    Raise `CellblockError`, or `ValueError` for a name that is not allowed.
    """
    match magic.name:
        case "checkpoint":
            return await _checkpoint(session, magic.argument)
        case "restore":
            return await _restore(session, magic.argument)
        case "drop":
            await session.drop(magic.argument)
            return f"Dropped checkpoint {magic.argument}.\n"
        case _:
            names = [checkpoint.name for checkpoint in session.checkpoints]
            return "".join(f"{name}\n" for name in names) or "There is no checkpoint.\n"


async def _checkpoint(session: KernelSession, name: str) -> str:
    """Make a checkpoint. One with the same name is replaced, so that a cell can run again."""
    if any(checkpoint.name == name for checkpoint in session.checkpoints):
        await session.drop(name)
    checkpoint = await session.checkpoint(name or None)
    return f"Checkpoint {checkpoint.name}: variables and files are saved.\n"


async def _restore(session: KernelSession, name: str) -> str:
    """Restore a checkpoint; without a name, the newest."""
    checkpoints = session.checkpoints
    chosen = checkpoints[-1] if checkpoints and not name else name
    await session.restore(chosen)
    shown = chosen if isinstance(chosen, str) else chosen.name
    return f"Variables and files are as they were at checkpoint {shown}.\n"
