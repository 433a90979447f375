"""The commands that a user types between messages, such as `:undo`."""

from __future__ import annotations

from pathlib import Path

from .conversation import Conversation
from .model.turn import visible_answer
from .setup import ChatSetup
from .transcripts.entries import AnswerEntry, Entry, UserEntry
from .transcripts.file import SUFFIXES, has_content, write_transcript

_HELP = (
    ":retry       ask the model again for an answer to your last message",
    ":undo        take back your last message and what followed",
    ":compact     let the model shorten the conversation to a summary",
    ":clear       begin a new conversation",
    ":model NAME  go on with another model",
    ":save FILE   save the conversation from now on, as Markdown (.md) or notebook (.ipynb)",
    ":quit        end the conversation; so does Ctrl-D",
    "Commands may begin with / instead. They never change files and variables of the code.",
    "Enter sends a message, Alt-Enter starts a new line in it. Ctrl-C stops the model or its code.",
)
_NAMES = ("help", "retry", "undo", "compact", "clear", "model", "save", "quit", "exit")
_WITH_ARGUMENT = ("model", "save")
_EXITS = (":quit", ":exit", "/quit", "/exit", "exit", "quit")
_SUMMARIZE = (
    "Summarize our conversation, so that you can go on with the summary alone: the task, what is "
    "done, what was found, the files and variables that exist, and what is left to do. Write no "
    "code blocks."
)


def is_exit(text: str) -> bool:
    """Return True if `text` ends the conversation."""
    return text.strip() in _EXITS


def is_command(text: str) -> bool:
    """Return True if `text` is no message: it begins with `:`, or with `/` and a known name."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith(":") or (first.startswith("/") and first[1:] in _NAMES)


class ChatCommands:
    """Run commands on `conversation`."""

    def __init__(self, setup: ChatSetup, conversation: Conversation) -> None:
        self._setup, self._conversation = setup, conversation
        self._transcript, self._note = setup.transcript, setup.output.note

    async def run(self, text: str) -> str | None:
        """Run the command `text`. Return a message that the model is to answer now, or None.

        Raise `CellblockError` if the command fails. The conversation is as it was then.
        """
        name, _, argument = text.strip()[1:].partition(" ")
        argument = argument.strip()
        if argument and name in _NAMES and name not in _WITH_ARGUMENT:
            self._note(f":{name} takes nothing after it")
            return None
        match name:
            case "retry":
                return self._take_back()
            case "undo":
                if (message := self._take_back()) is not None:
                    self._note(f"taken back: {message:.60}")
            case "clear":
                self._start_anew([])
            case "compact":
                await self._compact()
            case "model":
                await self._change_model(argument)
            case "save":
                self._save(argument)
            case _:
                self._help(name)
        return None

    def _help(self, name: str) -> None:
        if name != "help":
            self._note(f"there is no command :{name}")
        for line in _HELP:
            self._note(line)

    def _take_back(self) -> str | None:
        """Remove the last message and what followed, and return its text."""
        entries = self._transcript.entries
        for number in range(len(entries) - 1, -1, -1):
            entry = entries[number]
            if isinstance(entry, UserEntry):
                self._transcript.replace_all(entries[:number])
                return entry.text
        self._note("there is no message yet")
        return None

    def _start_anew(self, entries: list[Entry]) -> None:
        """Go on with `entries` in another file, so that the old conversation stays saved."""
        before = self._transcript.path
        if before is not None:
            self._transcript.path = None
            self._setup.save_by_default()
        self._transcript.replace_all(entries)
        kept = f"; {before} has the old one" if before is not None and before.exists() else ""
        self._note(f"a new conversation begins{kept}")

    async def _compact(self) -> None:
        """Let the model summarize the conversation, and go on with the summary."""
        entries, model = list(self._transcript.entries), self._conversation.model
        if not entries:
            self._note("there is no message yet")
            return
        used = model.usage
        request = UserEntry(_SUMMARIZE)
        self._transcript.entries.append(request)
        answer = AnswerEntry("", is_complete=False)
        try:
            with self._conversation.interruptible() as token:
                answer = await model.ask(token)
        finally:
            self._setup.print_usage(used, model.usage)
            self._transcript.replace_all(entries)
        if answer.is_complete and visible_answer(answer.text).strip():
            self._start_anew([request, answer])
        else:
            self._note("there is no summary: the conversation is as it was")

    async def _change_model(self, name: str) -> None:
        if not name:
            self._note(f"the model is {self._setup.settings.model}; :model NAME chooses another")
            return
        self._conversation.model.client = await self._setup.change_model(name)
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
        write_transcript(path, self._transcript.entries)
        before, self._transcript.path = self._transcript.path, path
        stale = f"; {before} is not changed any more" if before not in (None, path) else ""
        self._note(f"saved in {path} from now on{stale}")
