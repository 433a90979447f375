"""The commands that a user types between messages, such as `:undo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...agents.model_calls import without_thoughts
from .conversation import Conversation
from .model.summary import SUMMARIZE, summarize
from .settings import ApprovalMode
from .setup import ChatSetup
from .transcripts.entries import AnswerEntry, Entry, RefusalEntry, UserEntry
from .transcripts.file import SUFFIXES, has_content

_HELP = (
    ":retry       ask the model again: continue after an error, or answer your last message again",
    ":undo        take back your last message and what followed; or :compact or :clear",
    ":compact     let the model shorten the conversation to a summary",
    ":clear       begin a new conversation",
    ":approve     ask again before code runs, after [a]lways; :approve MODE sets --approve",
    ":model NAME  continue with another model",
    ":save FILE   save the conversation from now on, as Markdown (.md) or notebook (.ipynb)",
    ":quit        end the conversation; so does Ctrl-D",
    "Commands may begin with / instead. They never change files and variables of the code.",
    "Enter sends a message, Alt-Enter starts a new line in it. Ctrl-C stops the model or its code.",
)
_NAMES = ("help", "retry", "undo", "compact", "clear", "approve", "model", "save", "quit", "exit")
_WITH_ARGUMENT = ("approve", "model", "save")
_MODES: dict[ApprovalMode, str] = {
    "always": "you are asked before code runs",
    "once": "you are asked before the next code runs",
    "risky": "you are asked before code runs that looks risky",
    "never": "code runs without a question",
}
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
        self._before: list[tuple[list[Entry], Path | None]] = []  # that `:compact` and `:clear` end

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
                return self._retry()
            case "undo":
                self._undo()
            case "clear":
                self._start_anew([])
                if self._conversation.approver.is_all_approved:
                    self._approve("")
            case "approve":
                self._approve(argument)
            case "compact":
                await self._compact()
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

    def _retry(self) -> bool:
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
        self._transcript.replace_all(entries)
        return True

    def _undo(self) -> None:
        """Remove the last message and what followed, or go back before `:compact` or `:clear`."""
        entries = self._transcript.entries
        number, message = _last_message(entries)
        if message not in ("", SUMMARIZE):
            self._transcript.replace_all(entries[:number])
            self._note(f"taken back: {message:.60}")
        elif self._before:
            entries, self._transcript.path = self._before.pop()
            self._transcript.replace_all(entries)
            where = f", saved in {self._transcript.path}" if self._transcript.path else ""
            self._note(f"continuing the earlier conversation{where}")
        elif message:
            self._note("only the summary is left; the conversation is in the file from before")
        else:
            self._note("there is no message yet")

    def _start_anew(self, entries: list[Entry]) -> None:
        """Go on with `entries` in another file, so that the old conversation stays saved."""
        before = self._transcript.path
        self._before.append((self._transcript.entries, before))
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


def _last_message(entries: Sequence[Entry]) -> tuple[int, str]:
    """Return the number and the text of the user's last message; -1 and "" if there is none."""
    messages = [(n, entry.text) for n, entry in enumerate(entries) if isinstance(entry, UserEntry)]
    return messages[-1] if messages else (-1, "")
