"""Take turns with the user at a terminal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ... import __version__
from ...cancellation import CancellationToken
from ...errors import CassetteMismatch, CellblockError, ModelError
from ..terminal.input_prompter import InputPrompter
from ..terminal.interrupts import ReplInterrupts
from .commands import ChatCommands, is_command, is_exit
from .conversation import Conversation
from .demo import DEMO_TASK
from .setup import ChatSetup
from .terminal import ChatTerminal
from .transcripts.entries import AnswerEntry, UserEntry


class TerminalLoop:
    """Read messages at `terminal` and let the model answer. Ctrl-C stops the model or the code."""

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
        commands = ChatCommands(self._setup, conversation)
        text = settings.task
        while True:
            if text is None:
                text = await self._read_message()
            if text is None:
                return
            if text.strip():
                await self._answer(conversation, commands, text)
            text = None

    async def _show_resumed(self) -> None:
        """Print which conversation is resumed."""
        entries = self._setup.transcript.entries
        if not entries:
            return
        self._output.note(f"continuing the conversation in {self._setup.settings.resume}")
        self._setup.note_resumed()
        for entry in entries[-2:]:
            if isinstance(entry, UserEntry | AnswerEntry):
                speaker = "you" if isinstance(entry, UserEntry) else "model"
                await self._output.show_message(speaker, entry.text)

    async def _read_message(self) -> str | None:
        """Return the next message or command; None if the user ends the conversation."""
        try:
            text = await self._terminal.read_message()
        except KeyboardInterrupt:
            self._output.note("Ctrl-D ends the conversation")
            return ""
        except EOFError:
            return None
        return None if is_exit(text) else text

    async def _answer(self, conversation: Conversation, commands: ChatCommands, text: str) -> None:
        """Run a command, or let the model answer. Print errors: the conversation continues."""
        try:
            if not is_command(text):
                await self._setup.take_turn(conversation, text)
            elif await commands.run(text):
                await self._setup.take_turn(conversation, None)
        except CellblockError as error:
            self._output.note(str(error))
            if isinstance(error, ModelError) and commands.can_retry():
                self._output.note(":retry asks again; :undo takes your message back")

    async def play_demo(self, conversation: Conversation) -> None:
        """Play the recorded conversation. The user approves its code."""
        self._output.note("a recorded conversation: the code really runs, in a sandbox")
        await self._output.show_message("you", DEMO_TASK)
        try:
            await self._setup.take_turn(conversation, DEMO_TASK)
        except CassetteMismatch:
            self._output.note("the recording continues only with the recorded code; it ends here")
        else:
            self._output.note("the recording ends here; --model NAME starts your own conversation")
