"""The loop of the REPL: read blocks from a terminal or a pipe, and run them in a session."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path

from ... import __version__
from ...errors import CellblockError, WorkspaceError
from ...text_files import UnreadableText, python_encoding, unreadable_python
from ..options.factory import (
    WORK_DIR,
    InputCallback,
    install_progress,
    make_advisor,
    work_folder,
)
from ..options.settings import ReplSettings
from ..terminal.input_prompter import InputPrompter
from ..terminal.interrupts import ReplInterrupts, RunInterrupts
from ..terminal.render import Renderer
from ..terminal.stdio import has_colours, have_same_destination, replace_unencodable, write
from .commands import ReplCommandError
from .completer import ReplCompleter
from .executor import make_repl_session
from .history import history_file, open_history
from .image_viewer import ImageViewer
from .magics import code_of_magic, is_magic
from .session import ReplSession
from .statement_splitter import StatementSplitter
from .terminal import Terminal

_STDIN, _STDIN_NAME = 0, "standard input"
# A first line of code, or two lines.
_ENCODING_IS_KNOWN = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\f]*[^#\s][^\n]*\n|[^\n]*\n[^\n]*\n")
_READ_SIZE = 64 * 1024
_EXIT_FAILED = 3


class _ReplLoop:
    """The settings, output and session that terminal and pipe have in common."""

    def __init__(self, settings: ReplSettings) -> None:
        replace_unencodable()
        self.settings = settings
        self.folder = WORK_DIR if settings.work_dir is None else settings.work_dir
        self.renderer = Renderer(
            [],
            folder=self.folder,
            same_destination=have_same_destination(),
            advisor=make_advisor(settings),
            has_colours=has_colours(os.environ),
        )
        self._image_viewer = ImageViewer.find(os.environ) if settings.open_images else None
        if settings.open_images and self._image_viewer is None:
            self.print_note("images are saved but not opened: there is no screen or no xdg-open")

    def print_note(self, text: str) -> None:
        """Print `text` on a separate line."""
        write(self.renderer.note(text))

    @contextlib.asynccontextmanager
    async def open_session(
        self, interrupts: RunInterrupts | ReplInterrupts, ask: InputCallback | None
    ) -> AsyncGenerator[ReplSession]:
        """Start the session, yield it, and stop it on exit."""
        with interrupts, work_folder(self.folder, is_default=self.settings.work_dir is None):
            session = make_repl_session(
                self.settings,
                self.folder,
                ask,
                image_folder=self.settings.image_folder,
                has_colours=has_colours(os.environ),
            )
            try:
                with install_progress(self.print_note):
                    await session.start()
                interrupts.set_running()
                yield ReplSession(session, self.renderer, self.folder, self._image_viewer)
            except asyncio.CancelledError:
                if not interrupts.exit_code:
                    raise
                self.print_note("cancelled")
            except CellblockError:
                write(self.renderer.start_new_line())
                raise
            finally:
                interrupts.set_stopping()
                await session.stop()


async def run_from_pipe(settings: ReplSettings) -> int:
    """Run the statements on standard input; return the exit code of the last one that failed."""
    loop = _ReplLoop(settings)
    interrupts = RunInterrupts(loop.print_note)
    exit_code = 0
    async with loop.open_session(interrupts, None) as session:
        async with contextlib.aclosing(_read_blocks()) as blocks:
            async for block in blocks:
                exit_code = await session.execute(block, interrupts.token) or exit_code
                if session.is_closed or interrupts.exit_code:
                    break
    return interrupts.exit_code or exit_code


async def _read_blocks() -> AsyncGenerator[str, None]:
    """Yield the blocks on standard input as soon as each is complete."""
    splitter, rest = StatementSplitter(), ""
    async with contextlib.aclosing(_read_text()) as texts:
        async for text in texts:
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                for block in splitter.add_line(line):
                    yield block
    for block in [*splitter.add_line(rest), *splitter.flush()]:
        yield block


async def _read_text() -> AsyncGenerator[str, None]:
    """Yield the text on standard input as it arrives, decoded as Python decodes a script.

    Raise `CellblockError` if that is not possible.
    """
    head = data = await _read_stdin()
    while data and not _ENCODING_IS_KNOWN.match(head):
        data = await _read_stdin()
        head += data
    line_count, data = 0, head
    try:
        decoder = codecs.getincrementaldecoder(python_encoding(head, _STDIN_NAME))()
        newlines = io.IncrementalNewlineDecoder(decoder, translate=True)
        while data:
            yield newlines.decode(data)
            line_count, data = line_count + data.count(b"\n"), await _read_stdin()
        yield newlines.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise CellblockError(str(unreadable_python(error, _STDIN_NAME, line_count))) from error
    except UnreadableText as error:
        raise CellblockError(str(error)) from error


async def _read_stdin() -> bytes:
    """Return the data that is available on standard input; b"" at its end or if it is closed."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(_STDIN, readable.set)
    except PermissionError:
        pass  # a regular file, which epoll does not accept and which never blocks
    except OSError:
        return b""
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(_STDIN)
    try:
        return os.read(_STDIN, _READ_SIZE)
    except OSError:
        return b""


async def run_at_terminal(settings: ReplSettings) -> int:
    """Read and run blocks at the terminal until the user ends the session."""
    loop = _ReplLoop(settings)
    interrupts = ReplInterrupts(loop.print_note)
    completer = ReplCompleter()
    terminal = Terminal(_history_path(loop), completer)
    prompter = InputPrompter(terminal)
    async with loop.open_session(interrupts, prompter.read_answer) as session:
        prompter.screen = completer.session = session
        loop.print_note(
            f"cellblock {__version__}: Python in a sandbox, work folder {loop.folder}; "
            ":help lists the commands, Ctrl-D ends the session"
        )
        draft = last = ""
        while not session.is_closed:
            try:
                block, draft = await terminal.read_block(draft), ""
            except KeyboardInterrupt:
                draft = ""
                continue
            except EOFError:
                break
            if not block.strip():
                continue
            if is_magic(block):
                try:
                    with interrupts.ignored():
                        code = await code_of_magic(block, last, loop.folder, os.environ)
                except ReplCommandError as error:
                    loop.print_note(str(error))
                    continue
                if block.startswith("%load"):
                    draft = code.rstrip()
                    continue
                block = code
            last = block
            with interrupts.block() as prompter.token:
                try:
                    await session.execute(block, prompter.token)
                except CellblockError as error:
                    loop.print_note(f"{error} :restart starts a new session.")
    return interrupts.exit_code


def _history_path(loop: _ReplLoop) -> Path | None:
    try:
        path = history_file(os.environ)
        open_history(path, loop.folder)
    except (RuntimeError, WorkspaceError) as error:
        loop.print_note(f"the history of this session is not saved: {error}")
        return None
    return path
