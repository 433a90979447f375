"""Open the parts of a conversation: model, executor, transcript, output."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from ...errors import WorkspaceError
from ...executors.base import CodeExecutor
from ...models.client import ChatCompletionClient
from ...models.messages import RequestUsage
from ..options.factory import (
    WORK_DIR,
    InputCallback,
    install_progress,
    make_advisor,
    make_executor,
    work_folder,
)
from ..options.shared import check_env
from ..own_files import OwnFiles
from ..terminal.interrupts import ReplInterrupts, RunInterrupts
from ..terminal.stdio import has_colours, replace_unencodable
from .approval.approver import Approver, AsksPerson
from .code_turn import CodeTurn
from .conversation import Conversation, Interruptible
from .demo import make_demo_client
from .folder_history import FolderHistory
from .languages import blocks_of
from .model.chat_model import ChatModel
from .model.choice import find_price, make_client
from .model.prices import describe_usage
from .model.system_prompt import system_prompt
from .output import ChatOutput
from .project_folder import read_rules
from .settings import LATEST, ChatSettings
from .transcripts.chat_locks import ChatLocks
from .transcripts.entries import (
    AnswerEntry,
    Entry,
    RunEntry,
    UserEntry,
    files_of_blocks,
)
from .transcripts.file import has_content, read_transcript, write_transcript
from .transcripts.saved_chats import latest_chat, new_chat, remember_chat
from .transcripts.saved_options import SavedOptions, read_options
from .transcripts.transcript import Transcript

_STARTING_NOTE_DELAY = 1.0  # seconds; a sandbox starts sooner


class ChatSetup:
    """Opens the parts of a conversation as `settings` ask. `output` and `transcript` are open."""

    def __init__(self, settings: ChatSettings) -> None:
        replace_unencodable()
        settings, self.options_note = _with_saved_options(_with_latest(settings))
        self.settings = settings
        self.folder = WORK_DIR if settings.work_dir is None else settings.work_dir
        self.output = ChatOutput(
            folder=self.folder,
            advisor=make_advisor(settings),
            has_colours=has_colours(os.environ),
        )
        self.history = FolderHistory(self.folder)
        self._locks = ChatLocks(os.environ)
        self.transcript = _open_transcript(settings, self._locks)
        if self.transcript.path is not None and not settings.demo:
            self._remember(self.transcript.path)
        if self.transcript.path is None and not (settings.no_save or settings.demo):
            self.save_by_default()
        self._price = None if settings.demo else find_price(settings)

    def save_by_default(self) -> None:
        """Save the conversation in a new file of the state folder."""
        try:
            path = new_chat(os.environ, self.folder)
            self._locks.acquire(path)
        except WorkspaceError as error:
            self.output.note(f"this conversation is not saved: {error}")
        else:
            self.transcript.path = path

    def save_in(self, path: Path) -> None:
        """Save the conversation in `path` from now on. Raise `WorkspaceError` if that fails."""
        self._locks.acquire(path)
        write_transcript(path, self.transcript.entries, self.transcript.options)
        self.transcript.path = path
        self._remember(path)

    def _remember(self, path: Path) -> None:
        try:
            remember_chat(os.environ, path)
        except WorkspaceError as error:
            self.output.note(f"--resume without a file does not find {path}: {error}")

    @asynccontextmanager
    async def open_client(self) -> AsyncGenerator[ChatCompletionClient]:
        """Yield the client of the model, or of the recorded conversation. Close it on exit."""
        if self.settings.demo:
            self._client = make_demo_client(is_slow=self.output.is_terminal)
        else:
            self._client = make_client(self.settings, os.environ)
        try:
            yield self._client
        finally:
            await self._client.close()  # also of another model, since `change_model`

    async def change_model(self, name: str) -> ChatCompletionClient:
        """Return the client of the model `name`. Raise `ModelError` if there is none."""
        settings = replace(self.settings, model=name, price=None, context_window=None)
        client = make_client(settings, os.environ)
        await self._client.close()
        self.settings, self._client, self._price = settings, client, find_price(settings)
        return client

    @asynccontextmanager
    async def open_executor(
        self, interrupts: RunInterrupts | ReplInterrupts, ask: InputCallback | None
    ) -> AsyncGenerator[CodeExecutor]:
        """Start the executor, yield it, and stop it on exit."""
        with interrupts, work_folder(self.folder, is_default=self.settings.work_dir is None):
            executor = self._make_executor(ask)
            try:
                starting = self.output.waiting(
                    f"starting the executor {self.settings.executor}", _STARTING_NOTE_DELAY
                )
                with install_progress(self.output.note), starting:
                    await executor.start()
                interrupts.set_running()
                yield executor
            finally:
                interrupts.set_stopping()
                await executor.stop()

    def _make_executor(self, ask: InputCallback | None) -> CodeExecutor:
        if self.settings.executor != "session":
            return make_executor(self.settings, self.folder, self.output.note)
        # As in `make_executor`: imported only when it is used.
        from ..repl.executor import make_repl_session

        return make_repl_session(
            self.settings,
            self.folder,
            ask,
            image_folder=self.settings.image_folder,
            has_colours=False,  # the model reads the output
            input_is_timed=False,
        )

    def make_conversation(
        self,
        client: ChatCompletionClient,
        executor: CodeExecutor,
        interruptible: Interruptible,
        ask: AsksPerson | None,
    ) -> Conversation:
        """Return the conversation of its parts."""
        rules, note = read_rules(self.folder)
        self.output.note(note)
        prompt = system_prompt(self.settings, is_live=executor.is_live, rules=rules)
        is_recorded = self.settings.demo and ask is None
        mode = "never" if is_recorded else self.settings.approve
        own_files = OwnFiles(self.folder, files_of_blocks(self.transcript.entries))
        own_files.remember()
        return Conversation(
            model=ChatModel(client, prompt, self.output),
            code=CodeTurn(
                executor,
                self.folder,
                self.transcript,
                self.output,
                own_files,
                None if ask is None else self.history,
            ),
            approver=Approver(mode, ask, own_files),
            transcript=self.transcript,
            output=self.output,
            max_turns=self.settings.max_turns,
            interruptible=interruptible,
        )

    def note_resumed(self) -> None:
        """Print the saved options of a resumed conversation, and what its end cut off."""
        self.output.note(self.options_note)
        if self.transcript.entries:
            self.output.note(_cut_off(self.transcript.entries[-1]))

    async def take_turn(self, conversation: Conversation, text: str | None) -> str | None:
        """Let the model answer `text`, or continue if it is None. See `Conversation.go_on`.

        Print why it has not answered, and the usage.
        """
        before = conversation.model.usage
        try:
            end = await (conversation.go_on() if text is None else conversation.answer(text))
        finally:
            self.print_usage(before, conversation.model.usage)
        if end is not None:
            self.output.note(end)
        return end

    def print_usage(self, before: RequestUsage, after: RequestUsage) -> None:
        """Print the tokens that were used since `before`."""
        read = after.prompt_tokens - before.prompt_tokens
        written = after.completion_tokens - before.completion_tokens
        if not (read or written):
            return
        text = describe_usage(RequestUsage(read, written), self._price)
        if before.prompt_tokens:
            text += f"; in all {describe_usage(after, self._price)}"
        self.output.note(text)


def _cut_off(last: Entry) -> str:
    """Return a line about what the end of a conversation, whose entry is the last, cut off."""
    match last:
        case RunEntry(has_no_end=True):
            return (
                "the last code never ended, because the command was killed: its output is lost, "
                "and files that it wrote may be incomplete"
            )
        case RunEntry():
            return "the model has not read the last output yet; :retry lets it go on"
        case UserEntry():
            return "the last message has no answer, because the command ended; :retry asks again"
        case AnswerEntry(is_complete=False):
            return "the last answer was cut off; :retry asks again"
        case AnswerEntry(text=text) if blocks_of(text):
            return "the code of the last answer did not run, because the command ended"
        case _:
            return ""


def _with_latest(settings: ChatSettings) -> ChatSettings:
    """Return `settings` with the file of the latest conversation, if that is to continue."""
    if settings.resume != LATEST:
        return settings
    if (path := latest_chat(os.environ)) is None:
        raise click.UsageError(
            "there is no conversation of this folder to continue: pass --resume FILE",
            click.get_current_context(),
        )
    return replace(settings, resume=str(path))


def _with_saved_options(settings: ChatSettings) -> tuple[ChatSettings, str]:
    """Return `settings` with the options of the conversation to continue, and a note on them."""
    if settings.resume is None:
        return settings, ""

    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is not ParameterSource.DEFAULT

    settings, note = read_options(Path(settings.resume)).add_to(settings, is_given)
    check_env(settings.env, settings.executor)
    return settings, note


def _open_transcript(settings: ChatSettings, locks: ChatLocks) -> Transcript:
    """Return the transcript to continue, or a new one. Raise `click.UsageError`."""
    path = None if settings.no_save else settings.save or settings.resume
    if settings.save and settings.save != settings.resume and has_content(Path(settings.save)):
        raise click.UsageError(
            f"{settings.save} exists: pass --resume {settings.save} to continue it, or another "
            "name to --save",
            click.get_current_context(),
        )
    if path is not None:
        try:
            locks.acquire(Path(path))
        except WorkspaceError as error:
            raise click.UsageError(
                f"{error}: end the conversation there, or use --save OTHER.md to work on a copy",
                click.get_current_context(),
            ) from error
    try:
        entries = [] if settings.resume is None else read_transcript(Path(settings.resume))
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    options = SavedOptions.of(settings)
    return Transcript(None if path is None else Path(path), entries, options)
