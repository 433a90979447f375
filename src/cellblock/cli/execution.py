"""Run blocks and show what happens: an executor on one side, the two output streams on the other."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

import click

from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..errors import CellblockError, WorkspaceError
from ..executors.base import CodeExecutor
from ..limits import LOCAL_LIMITS, SANDBOX_LIMITS, Limits
from ..policy import Policy
from ..result import CodeResult, Folder
from .interrupts import Interrupts
from .render import Piece, Renderer
from .settings import Settings

_WORK_DIR = "coding"
_ENVIRONMENTS = "cellblock.environments"  # the logger of who installs packages

Note = Callable[[str], None]


async def execute(blocks: Sequence[CodeBlock], settings: Settings, remark: str) -> int:
    """Run `blocks` and show what happens, `remark` first; give the command's exit code. Raises our errors."""
    _accept_any_text()
    folder = _WORK_DIR if settings.work_dir is None else settings.work_dir
    renderer = Renderer(blocks, folder=folder, one_place=_is_one_place())

    def note(text: str) -> None:
        if not settings.as_json:
            _write(renderer.note(text))

    if remark:
        note(remark)
    with Interrupts() as interrupts, _made(folder, ours=settings.work_dir is None):
        executor = _executor(settings, folder, note)
        try:
            with _progress(note):
                await executor.start()
            interrupts.started()
            result = await _run(executor, blocks, settings, renderer, interrupts.token)
        except asyncio.CancelledError:
            if not interrupts.exit_code:
                raise
            note("cancelled")
            return interrupts.exit_code
        except CellblockError:
            _write(renderer.fresh_line())
            raise
        finally:
            interrupts.stopping()
            await executor.stop()
    return interrupts.exit_code or result.exit_code


async def _run(
    executor: CodeExecutor,
    blocks: Sequence[CodeBlock],
    settings: Settings,
    renderer: Renderer,
    token: CancellationToken,
) -> CodeResult:
    """Run `blocks`, and write what there is to write when it is time."""
    folder, held = Folder(), list[Piece]()
    async with contextlib.aclosing(executor.execute_stream(blocks, token)) as events:
        async for event in events:
            folder.add(event)
            if settings.as_json:
                continue
            held += renderer.pieces(event)
            if settings.stream:
                # In a thread: a reader who does not read must not keep Ctrl-C from being heard.
                await asyncio.to_thread(_write, held)
                held.clear()
    result = folder.result()
    if settings.as_json:
        text = json.dumps(dataclasses.asdict(result), indent=2)
        held.append(Piece("stdout", f"{text}\n"))
    await asyncio.to_thread(_write, held)
    return result


def _executor(settings: Settings, folder: str, note: Note) -> CodeExecutor:
    """Make the executor; what it warns of becomes a note."""
    limits = SANDBOX_LIMITS if settings.executor == "sandbox" else LOCAL_LIMITS
    if settings.memory_bytes is not None:
        limits = dataclasses.replace(limits, memory_bytes=settings.memory_bytes)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        executor = _make(settings, folder, limits)
    for warning in warned:
        note(str(warning.message))
    return executor


def _make(settings: Settings, folder: str, limits: Limits) -> CodeExecutor:
    # Each only when it is used: neither needs what the other imports.
    if settings.executor == "local":
        from ..executors.local import LocalCommandLineCodeExecutor

        return LocalCommandLineCodeExecutor(settings.timeout, folder, packages=settings.packages, limits=limits)
    from ..executors.sandbox import SandboxCommandLineCodeExecutor

    policy = Policy(network="host" if settings.network else "none")
    return SandboxCommandLineCodeExecutor(settings.timeout, folder, packages=settings.packages, limits=limits, policy=policy)


@contextlib.contextmanager
def _made(folder: str, *, ours: bool) -> Generator[None, None, None]:
    """Make the work folder when it is missing. One that is `ours` goes again when nothing was left in it."""
    ours = ours and not os.path.lexists(folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        message = f"The work folder {folder} cannot be made: {reason}. Name another with --work-dir."
        raise WorkspaceError(message) from error
    try:
        yield
    finally:
        if ours:
            with contextlib.suppress(OSError):  # not empty, or gone
                os.rmdir(folder)


@contextlib.contextmanager
def _progress(note: Note) -> Generator[None, None, None]:
    """Show what is said while packages are installed."""
    logger = logging.getLogger(_ENVIRONMENTS)
    handler = _Notes(note)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Notes(logging.Handler):
    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


def _write(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        click.echo(_styled(piece), nl=False, err=piece.stream == "stderr")


def _styled(piece: Piece) -> str:
    match piece.style:
        case "plain":
            return piece.text
        case "dim":
            return click.style(piece.text, dim=True)
        case "bold":
            return click.style(piece.text, bold=True)


def _accept_any_text() -> None:
    """Have what the streams' encoding lacks replaced: a program may print anything anywhere."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not when it is closed
            stream.reconfigure(errors="backslashreplace")


def _is_one_place() -> bool:
    """Tell whether both streams end at the same place."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError, AttributeError):  # closed, or not of the system
        return False
