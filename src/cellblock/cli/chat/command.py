"""Run `cellblock chat`: once for one task, or taking turns with a user at a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from ...errors import WorkspaceError
from ..repl.history import history_file, open_history
from ..terminal.input_prompter import InputPrompter
from ..terminal.interrupts import ReplInterrupts, RunInterrupts
from .approval.code_prompt import CodePrompt
from .demo import DEMO_TASK
from .settings import ChatSettings
from .setup import ChatSetup
from .terminal import ChatTerminal
from .terminal_loop import TerminalLoop

_EXIT_UNFINISHED = 1


async def run_once(settings: ChatSettings) -> int:
    """Do the task without asking anybody, and return the exit code."""
    chat = ChatSetup(settings)
    interrupts = RunInterrupts(chat.output.note)
    task = DEMO_TASK if settings.demo else str(settings.task)
    end: str | None = ""
    async with chat.open_client() as client:
        with _cancelled_by_signal(chat, interrupts):
            async with chat.open_executor(interrupts, None) as executor:
                conversation = chat.make_conversation(
                    client, executor, lambda: nullcontext(interrupts.token), None
                )
                chat.note_resumed()
                end = await chat.take_turn(conversation, task)
    return interrupts.exit_code or (0 if end is None else _EXIT_UNFINISHED)


async def run_at_terminal(settings: ChatSettings) -> int:
    """Take turns with the user until the user ends the conversation."""
    chat = ChatSetup(settings)
    interrupts = ReplInterrupts(chat.output.note)
    async with chat.open_client() as client:
        terminal = ChatTerminal(_history_path(chat))
        prompter = InputPrompter(terminal)
        prompter.screen = chat.output
        with chat.history.open(), _cancelled_by_signal(chat, interrupts):
            async with chat.open_executor(interrupts, prompter.read_answer) as executor:
                loop = TerminalLoop(chat, terminal, interrupts, prompter)
                ask = CodePrompt(terminal, chat.output, interrupts)
                conversation = chat.make_conversation(client, executor, loop.interruptible, ask)
                await (loop.play_demo(conversation) if settings.demo else loop.run(conversation))
    return interrupts.exit_code


@contextmanager
def _cancelled_by_signal(
    chat: ChatSetup, interrupts: RunInterrupts | ReplInterrupts
) -> Generator[None]:
    """Suppress a cancellation that a signal caused. The exit code says it."""
    try:
        yield
    except asyncio.CancelledError:
        if not interrupts.exit_code:
            raise
        chat.output.note("cancelled")


def _history_path(chat: ChatSetup) -> Path | None:
    try:
        path = history_file(os.environ).with_name("chat_history")
        open_history(path, chat.folder)
    except (RuntimeError, WorkspaceError) as error:
        chat.output.note(f"what you type is not saved in a history: {error}")
        return None
    return path
