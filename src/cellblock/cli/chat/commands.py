"""The commands that a user types between messages, such as `:undo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...agents.model_calls import without_thoughts
from ...aio.shielded import run_in_thread
from ...blocks import CodeBlock
from ...errors import CheckpointError, WorkspaceError
from ..terminal.render import printable_line
from .conversation import Conversation
from .folder_history import RunChanges
from .languages import blocks_of
from .model.summary import SUMMARIZE, summarize
from .settings import ApprovalMode
from .setup import ChatSetup
from .transcripts.entries import AnswerEntry, Entry, RefusalEntry, RunEntry, UserEntry
from .transcripts.file import SUFFIXES, has_content

_HELP = (
    ":retry       ask the model again: continue after an error, or answer your last message again",
    ":undo        take back your last message and what followed, also in the work folder; or "
    ":compact or :clear",
    ":diff        show what the code changed in the work folder since your last message",
    ":show        show the last code and its output again, unfolded",
    ":compact     let the model shorten the conversation to a summary",
    ":clear       begin a new conversation",
    ":approve     ask again before code runs, after [a]lways; :approve MODE sets --approve",
    ":model NAME  continue with another model",
    ":save FILE   save the conversation from now on, as Markdown (.md) or notebook (.ipynb)",
    ":quit        end the conversation; so does Ctrl-D",
    "Commands may begin with / instead. The variables of the code stay as they are.",
    "Enter sends a message, Alt-Enter starts a new line in it. Ctrl-C stops the model or its code.",
)
_NAMES = (
    "help",
    "retry",
    "undo",
    "diff",
    "show",
    "compact",
    "clear",
    "approve",
    "model",
    "save",
    "quit",
    "exit",
)
_WITH_ARGUMENT = ("approve", "model", "save")
_MODES: dict[ApprovalMode, str] = {
    "always": "you are asked before code runs",
    "once": "you are asked before the next code runs",
    "risky": "you are asked before code runs that looks risky",
    "never": "code runs without a question",
}
_MAX_LISTED = 10  # files
_EXITS = (":quit", ":exit", "/quit", "/exit", "exit", "quit")


def is_exit(text: str) -> bool:
    """Return True if `text` ends the conversation."""
    return text.strip() in _EXITS


def is_command(text: str) -> bool:
    """Return True if `text` is not a message: it begins with `:`, or with `/` and a known name."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith(":") or (first.startswith("/") and first[1:] in _NAMES)


class ChatCommands:
    """Run commands on `conversation`."""

    def __init__(self, setup: ChatSetup, conversation: Conversation) -> None:
        self._setup, self._conversation = setup, conversation
        self._transcript, self._note = setup.transcript, setup.output.note
        self._awaited = {
            "undo": self._undo,
            "diff": self._diff,
            "show": self._show,
            "compact": self._compact,
        }
        # What `:compact` and `:clear` end: entries, their file, and what changed the work folder.
        self._before: list[tuple[list[Entry], Path | None, list[RunChanges]]] = []

    async def run(self, text: str) -> bool:
        """Run the command `text`. Return True if the model is to continue now.

        Raise `CellblockError` if the command fails. The conversation is as it was then.
        """
        name, _, argument = text.strip()[1:].partition(" ")
        argument = argument.strip()
        if argument and name in _NAMES and name not in _WITH_ARGUMENT:
            self._note(f":{name} takes nothing after it")
            return False
        match name:
            case "retry":
                return await self._retry()
            case "undo" | "diff" | "show" | "compact":
                await self._awaited[name]()
            case "clear":
                self._start_anew([])
                if self._conversation.approver.is_all_approved:
                    self._approve("")
            case "approve":
                self._approve(argument)
            case "model":
                await self._change_model(argument)
            case "save":
                self._save(argument)
            case _:
                self._help(name)
        return False

    def _help(self, name: str) -> None:
        if name != "help":
            self._note(f"there is no command :{name}")
        for line in _HELP:
            self._note(line)

    def can_retry(self) -> bool:
        """Return True if the last entry has no complete answer yet."""
        entries = self._transcript.entries
        return bool(entries) and not (
            isinstance(entries[-1], AnswerEntry) and entries[-1].is_complete
        )

    async def _retry(self) -> bool:
        """Remove the last answer, and what it answers if that is not a message. Return True if so.

        After an error, or an answer that is not complete, what was done before stays.
        """
        entries = list(self._transcript.entries)
        if entries and isinstance(entries[-1], RefusalEntry) and not entries[-1].reason:
            entries = entries[:-1]
            if entries and isinstance(entries[-1], AnswerEntry):
                entries.pop()  # the model shall write other code
        elif entries and isinstance(last := entries[-1], AnswerEntry):
            entries.pop()
            if last.is_complete and without_thoughts(last.text).strip():
                entries = entries[: _last_message(entries)[0] + 1]
        if not entries or entries == [UserEntry(SUMMARIZE)]:
            self._note("there is no message yet")
            return False
        await self._restore_folder(len(entries))
        self._transcript.replace_all(entries)
        return True

    async def _undo(self) -> None:
        """Remove the last message and what followed, or go back before `:compact` or `:clear`."""
        entries = self._transcript.entries
        number, message = _last_message(entries)
        if message not in ("", SUMMARIZE):
            await self._restore_folder(number)
            self._transcript.replace_all(entries[:number])
            self._note(f"taken back: {message:.60}")
        elif self._before:
            entries, self._transcript.path, self._setup.history.runs = self._before.pop()
            self._transcript.replace_all(entries)
            where = f", saved in {self._transcript.path}" if self._transcript.path else ""
            self._note(f"continuing the earlier conversation{where}")
        elif message:
            self._note("only the summary is left; the conversation is in the file from before")
        else:
            self._note("there is no message yet")

    async def _restore_folder(self, number: int) -> None:
        """Take back what the code of the entries from `number` on changed in the work folder.

        Raise `WorkspaceError` if that fails.
        """
        history = self._setup.history
        ran = {n for n, entry in enumerate(self._transcript.entries) if isinstance(entry, RunEntry)}
        if any(n >= number for n in ran - {run.number for run in history.runs}):
            self._note("files stay as code left them: the work folder before it is not known")
        if not all(run.is_complete for run in history.runs if run.number >= number):
            self._note("what code created stays: the work folder after it could not be copied")
        try:
            undone = await run_in_thread(history.undo, number)
        except (CheckpointError, OSError) as error:
            raise WorkspaceError(f"The work folder was not restored: {error}") from error
        if undone.restored:
            self._note(f"as before: {_listed(undone.restored)}")
        if undone.kept:
            self._note(f"changed since by others, and left as is: {_listed(undone.kept)}")

    async def _diff(self) -> None:
        history = self._setup.history
        number = _last_message(self._transcript.entries)[0]
        lines = await run_in_thread(lambda: list(history.diff(max(0, number))))
        if not lines:
            self._note("the code has changed no files since your last message")
        await self._setup.output.show_diff(lines, len(lines))

    async def _show(self) -> None:
        """Show the last code, and what it printed if it ran."""
        output = self._setup.output
        for entry in reversed(self._transcript.entries):
            if isinstance(entry, RunEntry):
                for block in entry.blocks:
                    await output.show_code([CodeBlock(block.code, block.language)])
                    await output.show_output(block.output)
                return
            if isinstance(entry, AnswerEntry) and (blocks := blocks_of(entry.text)):
                await output.show_code(blocks)
                return
        self._note("there is no code yet")

    def _start_anew(self, entries: list[Entry]) -> None:
        """Go on with `entries` in another file, so that the old conversation stays saved."""
        before = self._transcript.path
        self._before.append((self._transcript.entries, before, self._setup.history.runs))
        self._setup.history.runs = []
        if before is not None:
            self._transcript.path = None
            self._setup.save_by_default()
        self._transcript.replace_all(entries)
        kept = f"; {before} has the old one" if before is not None and before.exists() else ""
        self._note(f"a new conversation begins{kept}; :undo goes back")

    async def _compact(self) -> None:
        """Let the model summarize the conversation, and continue with the summary."""
        entries, model = self._transcript.entries, self._conversation.model
        if not entries:
            self._note("there is no message yet")
            return
        used = model.usage
        try:
            with self._conversation.interruptible() as token:
                summary = await summarize(model, entries, self._setup.output, token)
        finally:
            self._setup.print_usage(used, model.usage)
        if summary and without_thoughts(summary).strip():
            self._start_anew([UserEntry(SUMMARIZE), AnswerEntry(summary)])
        else:
            self._note("there is no summary: the conversation is as it was")

    def _approve(self, mode: str) -> None:
        """Take back that all further code may run, and ask as `mode` says, if it is given."""
        approver = self._conversation.approver
        if mode and mode not in _MODES:
            self._note(f":approve takes one of {', '.join(_MODES)}")
            return
        approver.ask_again(mode or None)
        self._note(f"{_MODES[approver.mode]} (--approve {approver.mode})")

    async def _change_model(self, name: str) -> None:
        if not name:
            self._note(f"the model is {self._setup.settings.model}; :model NAME chooses another")
            return
        self._conversation.model.replace_client(await self._setup.change_model(name))
        self._note(f"the model is {name} from now on")

    def _save(self, name: str) -> None:
        """Save the conversation in a file from now on, unless that would replace another."""
        path = Path(name)
        if path.suffix not in SUFFIXES:
            self._note(f":save needs a file that ends with {' or '.join(SUFFIXES)}")
            return
        if path != self._transcript.path and has_content(path):
            self._note(f"{path} exists: choose another name")
            return
        before = self._transcript.path
        self._setup.save_in(path)
        stale = f"; {before} is not changed any more" if before not in (None, path) else ""
        self._note(f"saved in {path} from now on{stale}")


def _listed(paths: Sequence[str]) -> str:
    more = [f"and {len(paths) - _MAX_LISTED} more"] if len(paths) > _MAX_LISTED else []
    return ", ".join([*map(printable_line, paths[:_MAX_LISTED]), *more])


def _last_message(entries: Sequence[Entry]) -> tuple[int, str]:
    """Return the number and the text of the user's last message; -1 and "" if there is none."""
    messages = [(n, entry.text) for n, entry in enumerate(entries) if isinstance(entry, UserEntry)]
    return messages[-1] if messages else (-1, "")
