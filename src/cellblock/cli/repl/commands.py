"""The commands of the REPL: lines that start with a colon."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from ...errors import SessionError
from ...executors.session.checkpoint import Checkpoint
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ...executors.workspace.workspace import Workspace
from ..sizes import format_size
from ..terminal.render import format_table

_HELP = {
    ":help": "show this list",
    ":checkpoint [NAME]": "save the current variables and files",
    ":checkpoints": "list the checkpoints",
    ":restore [NAME]": "return to a checkpoint; without NAME, to the newest",
    ":drop NAME": "delete a checkpoint",
    ":files": "list the files in the work folder",
    ":variables": "list the variables",
    ":restart": "start a new session; the files stay",
    "%load FILE": "type the code of a file, to change or run it",
    "%edit [FILE]": "edit a file or the last block in your editor, and run the result",
    "%paste": "run the code in the clipboard",
    ":quit": "end the session; so do Ctrl-D and exit",
}
_KEYS = (
    "A block is run when its statement is complete. Enter on an empty line ends a block of an",
    "indented statement, such as a function. Empty lines inside pasted text do not end it.",
    "Tab completes names, attributes, columns, files and commands; Ctrl-C ends the running block.",
)
_EXITS = ("exit", "exit()", "quit", "quit()", ":quit")
_MAX_LISTED_FILES = 200


class ReplCommandError(Exception):
    """A command cannot be carried out. The message says why."""


def is_command(text: str) -> bool:
    """Return True if `text` is a command and not code."""
    return text.startswith(":") or text.strip() in _EXITS


class ReplCommands:
    """Run commands on `session`, whose work folder is `folder`."""

    def __init__(self, session: SandboxSessionCodeExecutor, folder: str) -> None:
        self._session, self._folder = session, folder
        self._saved: dict[str, Checkpoint] = {}
        self.has_quit = False
        self._handlers: dict[str, Callable[[str], Awaitable[Iterable[str]]]] = {
            "help": self._help,
            "checkpoint": self._checkpoint,
            "checkpoints": self._checkpoints,
            "restore": self._restore,
            "drop": self._drop,
            "files": self._files,
            "variables": self._variables,
            "restart": self._restart,
        }

    async def run(self, text: str) -> Iterable[str]:
        """Run the command `text` and return the lines to print.

        Raise `ReplCommandError`, or another `CellblockError` if the session failed.
        """
        if text.strip() in _EXITS:
            self.has_quit = True
            return ()
        name, _, argument = text.removeprefix(":").strip().partition(" ")
        if (command := self._handlers.get(name)) is None:
            raise ReplCommandError(f"unknown command :{name}; :help lists the commands")
        try:
            return await command(argument.strip())
        except (SessionError, ValueError) as error:  # a ValueError: an invalid name
            raise ReplCommandError(str(error)) from error

    async def _help(self, _: str) -> Iterable[str]:
        return [*format_table(list(_HELP.items())), "", *_KEYS]

    def complete(self, text: str) -> list[str]:
        """Return the commands, or the names of checkpoints, that can complete the line `text`."""
        command, _, argument = text.partition(" ")
        if command != text:
            return (
                [name for name in self._saved if name.startswith(argument)]
                if command in (":restore", ":drop", ":checkpoint")
                else []
            )
        return [name for name in (entry.split()[0] for entry in _HELP) if name.startswith(text)]

    async def _checkpoint(self, name: str) -> Iterable[str]:
        name = name or next(
            str(number) for number in range(1, 1 << 30) if str(number) not in self._saved
        )
        checkpoint = await self._session.checkpoint(name, replace=True)
        self._saved.pop(name, None)  # the new one is the newest
        self._saved[name] = checkpoint
        return [f"checkpoint {name}: {_checkpoint_cost(checkpoint)}"]

    async def _checkpoints(self, _: str) -> Iterable[str]:
        return format_table(
            [
                (name, f"after block {checkpoint.blocks}", _checkpoint_cost(checkpoint))
                for name, checkpoint in self._saved.items()
            ]
        )

    async def _restore(self, name: str) -> Iterable[str]:
        name = name or next(reversed(self._saved), "")
        await self._session.restore(self._find_checkpoint(name))
        return [f"variables and files are as they were at checkpoint {name}"]

    async def _drop(self, name: str) -> Iterable[str]:
        await self._session.drop(self._find_checkpoint(name))
        del self._saved[name]
        return ()

    def _find_checkpoint(self, name: str) -> Checkpoint:
        if name not in self._saved:
            if not self._saved:
                raise ReplCommandError("there is no checkpoint; :checkpoint creates one")
            raise ReplCommandError(f"unknown checkpoint {name}; known are {', '.join(self._saved)}")
        return self._saved[name]

    async def _files(self, _: str) -> Iterable[str]:
        found = Workspace(Path(self._folder)).list_changes(0, exclude="")
        rest = (
            [f"... and {len(found) - _MAX_LISTED_FILES} more"]
            if len(found) > _MAX_LISTED_FILES
            else []
        )
        return [
            *format_table([(path, format_size(size)) for path, size in found[:_MAX_LISTED_FILES]]),
            *rest,
        ]

    async def _variables(self, _: str) -> Iterable[str]:
        found = await self._session.variables()
        return format_table(
            [(entry.name, entry.type, format_size(entry.size_bytes), entry.repr) for entry in found]
        )

    async def _restart(self, _: str) -> Iterable[str]:
        self._saved.clear()
        with contextlib.suppress(OSError):  # restart() reports the problem
            os.makedirs(self._folder, exist_ok=True)
        await self._session.restart()
        return ["started a new session; the files are unchanged"]


def _checkpoint_cost(checkpoint: Checkpoint) -> str:
    copied = format_size(checkpoint.copied_bytes)
    return f"{checkpoint.seconds * 1000:.0f} ms, {copied} of files copied"
