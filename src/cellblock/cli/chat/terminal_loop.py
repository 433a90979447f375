"""Take turns with the user at a terminal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ... import __version__
from ...cancellation import CancellationToken
from ...errors import CassetteMismatch, CellblockError
from ..terminal.input_prompter import InputPrompter
from ..terminal.interrupts import ReplInterrupts
from .conversation import Conversation
from .demo import DEMO_TASK
from .setup import ChatSetup
from .terminal import ChatTerminal
from .transcripts.entries import AnswerEntry, UserEntry
from .transcripts.file import SUFFIXES, has_content, write_transcript

_HELP = (
    ":save FILE   save the conversation from now on, as Markdown (.md) or notebook (.ipynb)",
    ":quit        end the conversation; so does Ctrl-D",
    "Enter sends a message, Alt-Enter starts a new line in it. Ctrl-C stops the model or its code.",
)
_EXITS = (":quit", ":exit", "exit", "quit")


class TerminalLoop:
    """Read messages at `terminal` and let the model answer. Ctrl-C stops what is at work."""

    def __init__(
        self,
        setup: ChatSetup,
        terminal: ChatTerminal,
        interrupts: ReplInterrupts,
        prompter: InputPrompter,
    ) -> None:
        self._setup, self._terminal, self._output = setup, terminal, setup.output
        self._interrupts, self._prompter = interrupts, prompter

    @contextmanager
    def interruptible(self) -> Generator[CancellationToken]:
        """Yield a token that Ctrl-C cancels while the context is open."""
        with self._interrupts.block() as token:
            self._prompter.token = token
            yield token

    async def run(self, conversation: Conversation) -> None:
        """Take turns until the user ends the conversation."""
        settings = self._setup.settings
        self._output.note(
            f"cellblock {__version__}: model {settings.model}, executor {settings.executor}, "
            f"work folder {self._setup.folder}"
        )
        self._output.note("Ctrl-C stops the model or its code, Ctrl-D ends, :help tells more")
        await self._show_resumed()
        text = settings.task
        while True:
            if text is None:
                text = await self._read_message()
            if text is None:
                return
            if text.strip():
                await self._answer(conversation, text)
            text = None

    async def _show_resumed(self) -> None:
        """Print where a resumed conversation goes on."""
        entries = self._setup.transcript.entries
        if not entries:
            return
        self._output.note(f"the conversation in {self._setup.settings.resume} goes on")
        self._setup.note_lost_run()
        for entry in entries[-2:]:
            if isinstance(entry, UserEntry | AnswerEntry):
                speaker = "you" if isinstance(entry, UserEntry) else "model"
                await self._output.show_message(speaker, entry.text)

    async def _read_message(self) -> str | None:
        """Return the next message or command; None if the user ends the conversation."""
        try:
            text = await self._terminal.read_message()
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None
        return None if text.strip() in _EXITS else text

    async def _answer(self, conversation: Conversation, text: str) -> None:
        """Run a command, or let the model answer. Print errors: the conversation goes on."""
        try:
            if text.startswith(":"):
                self._run_command(text.strip())
            else:
                await self._setup.take_turn(conversation, text)
        except CellblockError as error:
            self._output.note(str(error))

    def _run_command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        if name == ":save" and Path(argument.strip()).suffix in SUFFIXES:
            self._save(Path(argument.strip()))
        elif name == ":save":
            self._output.note(f":save needs a file that ends with {' or '.join(SUFFIXES)}")
        else:
            if name != ":help":
                self._output.note(f"there is no command {name}")
            for line in _HELP:
                self._output.note(line)

    def _save(self, path: Path) -> None:
        """Save the conversation in `path` from now on, unless that would replace another file."""
        transcript = self._setup.transcript
        if path != transcript.path and has_content(path):
            self._output.note(f"{path} exists: choose another name")
            return
        write_transcript(path, transcript.entries)
        before, transcript.path = transcript.path, path
        stale = f"; {before} is not changed any more" if before not in (None, path) else ""
        self._output.note(f"saved in {path} from now on{stale}")

    async def play_demo(self, conversation: Conversation) -> None:
        """Play the recorded conversation. The user approves its code."""
        self._output.note("a recorded conversation: the code really runs, in a sandbox")
        await self._output.show_message("you", DEMO_TASK)
        try:
            await self._setup.take_turn(conversation, DEMO_TASK)
        except CassetteMismatch:
            self._output.note("the recording goes on only with the recorded code; it ends here")
        else:
            self._output.note("the recording ends here; --model NAME starts your own conversation")
