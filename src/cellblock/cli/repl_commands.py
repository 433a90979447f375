"""What one can say to a live session besides code: lines that begin with a colon."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from ..errors import SessionError
from ..executors.session.checkpoint import Checkpoint
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from ..executors.workspace.workspace import Workspace
from .sizes import format_size

_HELP = {
    ":help": "this list",
    ":checkpoint [NAME]": "keep variables and files as they are now",
    ":checkpoints": "list what is kept",
    ":restore [NAME]": "go back to it, as often as wanted; without a name to the newest",
    ":drop NAME": "forget it",
    ":files": "list the files of the work folder",
    ":variables": "list the variables",
    ":restart": "begin a new session over the same files",
    ":quit": "leave; so do Ctrl-D and exit",
}
_EXITS = ("exit", "exit()", "quit", "quit()", ":quit")
_MOST_FILES = 200


class CommandError(Exception):
    """What was said cannot be done; the message says why."""


def is_command(text: str) -> bool:
    """Tell whether `text` is for us, and not code."""
    return text.startswith(":") or text.strip() in _EXITS


class Commands:
    """Do what commands ask `session` for. `folder` is its work folder."""

    def __init__(self, session: SandboxSessionCodeExecutor, folder: str) -> None:
        self._session, self._folder = session, folder
        self._marks: dict[str, Checkpoint] = {}
        self.has_quit = False
        self._known: dict[str, Callable[[str], Awaitable[Iterable[str]]]] = {
            "help": self._help,
            "checkpoint": self._checkpoint,
            "checkpoints": self._checkpoints,
            "restore": self._restore,
            "drop": self._drop,
            "files": self._files,
            "variables": self._variables,
            "restart": self._restart,
        }

    async def do(self, text: str) -> Iterable[str]:
        """Do what `text` says, and give the lines that answer it. Raises `CommandError`, and our errors."""
        if text.strip() in _EXITS:
            self.has_quit = True
            return ()
        name, _, argument = text.removeprefix(":").strip().partition(" ")
        if (command := self._known.get(name)) is None:
            raise CommandError(f"there is no command :{name}; :help lists them")
        try:
            return await command(argument.strip())
        except SessionError as error:
            raise CommandError(str(error)) from error

    async def _help(self, _: str) -> Iterable[str]:
        return table(list(_HELP.items()))

    async def _checkpoint(self, name: str) -> Iterable[str]:
        name = name or next(
            str(number) for number in range(1, 1 << 30) if str(number) not in self._marks
        )
        before = self._marks.pop(name, None)
        if before is not None:
            await self._session.drop(before)
        mark = self._marks[name] = await self._session.checkpoint()
        return [f"checkpoint {name}: {_cost(mark)}"]

    async def _checkpoints(self, _: str) -> Iterable[str]:
        return table(
            [
                (name, f"after block {mark.blocks}", _cost(mark))
                for name, mark in self._marks.items()
            ]
        )

    async def _restore(self, name: str) -> Iterable[str]:
        name = name or next(reversed(self._marks), "")
        await self._session.restore(self._mark(name))
        return [f"variables and files are as they were at checkpoint {name}"]

    async def _drop(self, name: str) -> Iterable[str]:
        await self._session.drop(self._mark(name))
        del self._marks[name]
        return ()

    def _mark(self, name: str) -> Checkpoint:
        if name not in self._marks:
            known = f"there are {', '.join(self._marks)}" if self._marks else "there are none"
            raise CommandError(
                f"there is no checkpoint {name}: {known}" if name else "there is no checkpoint yet"
            )
        return self._marks[name]

    async def _files(self, _: str) -> Iterable[str]:
        found = Workspace(Path(self._folder)).changed(0, besides="")
        rest = [f"... and {len(found) - _MOST_FILES} more"] if len(found) > _MOST_FILES else []
        return [*table([(path, format_size(size)) for path, size in found[:_MOST_FILES]]), *rest]

    async def _variables(self, _: str) -> Iterable[str]:
        found = await self._session.variables()
        return table(
            [(entry.name, entry.type, format_size(entry.size_bytes), entry.repr) for entry in found]
        )

    async def _restart(self, _: str) -> Iterable[str]:
        self._marks.clear()
        with contextlib.suppress(OSError):  # the restart says what is wrong with it
            os.makedirs(self._folder, exist_ok=True)
        await self._session.restart()
        return ["a new session; the files are still there"]


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Give `rows` as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cost(mark: Checkpoint) -> str:
    return f"{mark.seconds * 1000:.0f} ms, {format_size(mark.copied_bytes)} of files copied"
