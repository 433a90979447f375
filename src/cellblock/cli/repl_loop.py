"""The two ways to talk with a session: at a terminal, and by a pipe."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from .. import __version__
from ..cancellation import CancellationToken
from ..errors import CellblockError, WorkspaceError
from ..executors.displays import plain
from .factory import WORK_DIR, made_folder, make_session, progress
from .history import history_file, open_history
from .image_viewer import Pictures
from .interrupts import CellInterrupts, Interrupts
from .render import Renderer
from .repl_session import Conversation
from .settings import Settings
from .statement_splitter import Lines
from .stdio import accept_any_text, is_one_place, write
from .terminal import Terminal

_STDIN = 0
_READ = 64 * 1024
_EXIT_FAILED = 3

Ask = Callable[[str], Awaitable[str]]


class _Talk:
    """What both ways share: the session and its conversation, from start to end."""

    def __init__(self, settings: Settings, *, opens: bool) -> None:
        accept_any_text()
        self.settings = settings
        self.folder = WORK_DIR if settings.work_dir is None else settings.work_dir
        self.renderer = Renderer([], folder=self.folder, one_place=is_one_place())
        self._pictures = Pictures.on(os.environ) if opens else None
        if opens and self._pictures is None:
            self.note("pictures are saved, not opened: there is no screen, or no xdg-open")

    def note(self, text: str) -> None:
        """Say `text` on a line of its own."""
        write(self.renderer.note(text))

    @contextlib.asynccontextmanager
    async def conversation(
        self, interrupts: Interrupts | CellInterrupts, ask: Ask | None
    ) -> AsyncGenerator[Conversation]:
        """Start the session, and stop it in the end."""
        with interrupts, made_folder(self.folder, ours=self.settings.work_dir is None):
            session = make_session(self.settings, self.folder, ask)
            try:
                with progress(self.note):
                    await session.start()
                interrupts.started()
                yield Conversation(session, self.renderer, self.folder, self._pictures)
            except asyncio.CancelledError:
                if not interrupts.exit_code:
                    raise
                self.note("cancelled")
            except CellblockError:
                write(self.renderer.fresh_line())
                raise
            finally:
                interrupts.stopping()
                await session.stop()


async def by_pipe(settings: Settings, *, opens: bool) -> int:
    """Run the statements of standard input one after the other; give the exit code of the last that failed."""
    talk, interrupts, lines, exit_code = _Talk(settings, opens=opens), Interrupts(), Lines(), 0
    async with talk.conversation(interrupts, None) as conversation:
        async with contextlib.aclosing(_blocks(lines)) as blocks:
            async for block in blocks:
                exit_code = await conversation.say(block, interrupts.token) or exit_code
                if conversation.is_over or interrupts.exit_code:
                    break
    return interrupts.exit_code or exit_code


async def _blocks(lines: Lines) -> AsyncGenerator[str, None]:
    """Give the blocks of standard input as they come."""
    decoder, rest = codecs.getincrementaldecoder("utf-8-sig")(errors="replace"), ""
    while True:
        data = await _read()
        *whole, rest = (rest + decoder.decode(data, final=not data)).split("\n")
        for line in whole:
            for block in lines.take(line.removesuffix("\r")):
                yield block
        if not data:
            break
    for block in [*lines.take(rest), *lines.rest()]:
        yield block


async def _read() -> bytes:
    """Give what is there of standard input: nothing at its end, or when it is closed."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(_STDIN, readable.set)
    except PermissionError:
        pass  # a file, which never lets one wait
    except OSError:
        return b""
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(_STDIN)
    try:
        return os.read(_STDIN, _READ)
    except OSError:
        return b""


async def at_terminal(settings: Settings, *, opens: bool) -> int:
    """Talk with whoever is at the terminal, until they leave."""
    talk, interrupts = _Talk(settings, opens=opens), CellInterrupts()
    terminal = Terminal(_history(talk))
    speaker = _Speaker(terminal)
    async with talk.conversation(interrupts, speaker.answer) as conversation:
        speaker.conversation = conversation
        talk.note(
            f"cellblock {__version__}: Python in a sandbox, over the folder {talk.folder}; :help says more, Ctrl-D leaves"
        )
        while not conversation.is_over:
            try:
                block = await terminal.read()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if not block.strip():
                continue
            with interrupts.cell() as speaker.token:
                try:
                    await conversation.say(block, speaker.token)
                except CellblockError as error:
                    talk.note(f"{error} :restart begins a new session.")
    return interrupts.exit_code


def _history(talk: _Talk) -> Path | None:
    try:
        path = history_file(os.environ)
        open_history(path, talk.folder)
    except (RuntimeError, WorkspaceError) as error:
        talk.note(f"what you type is not kept: {error}")
        return None
    return path


class _Speaker:
    """Answer what cells ask for, at the terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self.conversation: Conversation | None = None
        self.token = CancellationToken()

    async def answer(self, prompt: str) -> str:
        """Give the answer to `prompt`; called on another loop than the terminal's."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._ask(prompt), self._loop)
        )

    async def _ask(self, prompt: str) -> str:
        assert self.conversation is not None
        await self.conversation.settle()
        self.conversation.fresh_line()
        try:
            return await self._terminal.ask(plain(prompt))
        except (KeyboardInterrupt, EOFError):
            self.token.cancel()  # there is no other way to say that nobody answers
            return ""
