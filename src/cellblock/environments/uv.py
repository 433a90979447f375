"""uv at work: in a folder of its own, under a lock that one builder holds, every word of it reported.

What a crash leaves in the folder is what the next builder of the same thing removes.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import functools
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from ..errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")
Report = Callable[[str], None]

_log = logging.getLogger(__name__)

# The first lines of an installed program of Python; the longer form is for paths that are long, have blanks or may change.
_HEAD = re.compile(rb"\A#!(?:/bin/sh\n'''exec' [^\n]*\n' '''|[^\n]*python[^/\n]*)\n")
_LONGEST_HEAD = 127  # bytes of a first line that every kernel reads

_LOCK_POLL_SECONDS = 0.05
_END_SECONDS = 30.0  # between uv's last word and its end
_WORDS_KEPT = 200  # lines of uv's output that an error can quote
_LINE_CHARACTERS = 4000

# These would send uv to another environment or interpreter, or put more into it than was asked for.
_MISLEADING = (
    "CONDA_PREFIX UV_BREAK_SYSTEM_PACKAGES UV_MANAGED_PYTHON UV_PROJECT UV_PYTHON UV_PYTHON_PREFERENCE "
    "UV_SYSTEM_PYTHON UV_VENV_SEED UV_WORKING_DIR VIRTUAL_ENV"
).split()


def to_log(line: str) -> None:
    """Report to the log."""
    _log.info("uv: %s", line)


def cache_folder(kind: str) -> Path:
    """Give the user's folder for what is kept of one kind. Raises `BackendError` when there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # A relative one is to be ignored, says the specification of these folders.
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError as error:
        raise BackendError(
            "There is no home folder. Set XDG_CACHE_HOME to a folder for caches."
        ) from error
    return root / "cellblock" / kind


@dataclass(frozen=True)
class Workshop:
    """Where the thing of that digest is built on this machine."""

    cache: Path
    digest: str

    @property
    def folder(self) -> Path:
        """The folder for all that is unfinished."""
        return self.cache / f"{self.digest}.partial"

    @contextlib.asynccontextmanager
    async def claim(self, report: Report) -> AsyncGenerator[int]:
        """Be the only one, among all processes, who builds it. Gives the lock's descriptor."""
        await in_thread(self._make_cache)
        with self._open_lock() as lock:
            if not _try_lock(lock):
                report("Waiting for another process that builds the same environment.")
            # Asked again and again: a thread that sleeps in flock could not be cancelled.
            while not _try_lock(lock):  # noqa: ASYNC110
                await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield lock.fileno()

    def _make_cache(self) -> None:
        with self.trouble():
            self.cache.mkdir(parents=True, exist_ok=True)

    def _open_lock(self) -> BinaryIO:
        with self.trouble():
            return open(self.cache / f"{self.digest}.lock", "ab")

    def prepare(self) -> None:
        """Make the folder anew, for who holds the lock."""
        with self.trouble():
            # Whoever made it is dead: its uv would hold the lock as well.
            self.clear()
            self.folder.mkdir()
            # uv searches upwards from its current folder for settings of a project; this one ends the search.
            (self.folder / "uv.toml").touch()

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def trouble(self) -> Generator[None]:
        """Say of an error that it is the cache that cannot be written."""
        try:
            yield
        except OSError as error:
            raise BackendError(
                f"Environments cannot be kept in {self.cache}: {error.strerror or error}. "
                "Set XDG_CACHE_HOME to a folder that you can write to."
            ) from error


def head_for(python: str) -> str:
    """Give the first lines of a program that is run by `python`."""
    head = f"#!{python}\n"
    if len(head.encode()) <= _LONGEST_HEAD and not re.search(r"\s", python):
        return head
    import shlex  # only such a path needs it

    return f"#!/bin/sh\n'''exec' {shlex.quote(python)} \"$0\" \"$@\"\n' '''\n"


def run_by(python: str, program: bytes) -> bytes:
    """Give an installed program as one that is run by `python`; what is not Python's stays as it is."""
    return _HEAD.sub(lambda _: head_for(python).encode(), program, count=1)


def _try_lock(lock: BinaryIO) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


async def run_uv(arguments: Sequence[str], workshop: Workshop, lock: int, report: Report) -> str:
    """Run uv to its end, every line to `report`. Gives what it said when it failed, else nothing."""
    words: deque[str] = deque(maxlen=_WORDS_KEPT)
    # A list, so that a cancellation while it starts does not lose it.
    started: list[subprocess.Popen[bytes]] = []
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                await in_thread(_start_uv, started, arguments, workshop, (lock, theirs.fileno()))
            await _follow(ours, words, report)
        except BaseException:
            # At once: nothing that it makes is kept. It is not reaped yet, so the number is still its own.
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            codes = [await in_thread(_reap, process) for process in started]
    return "" if codes == [0] else "\n".join([*words, f"(exit code {codes[0]})"])


def _start_uv(
    started: list[subprocess.Popen[bytes]],
    arguments: Sequence[str],
    workshop: Workshop,
    files: tuple[int, int],
) -> None:
    from uv import find_uv_bin  # only a build needs it

    lock, output = files
    try:
        process = subprocess.Popen(
            [find_uv_bin(), "--color", "never", "--no-progress", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=workshop.folder,
            env={name: value for name, value in os.environ.items() if name not in _MISLEADING},
            start_new_session=True,
            # A uv that outlives us keeps the lock: nobody builds in the folder in which it still writes.
            pass_fds=(lock,),
        )
    except OSError as error:
        raise BackendError(
            f"uv cannot be started: {error}. Install the package uv again."
        ) from error
    started.append(process)


async def _follow(stream: socket.socket, words: deque[str], report: Report) -> None:
    """Give every line of `stream` to `words` and `report`, until it ends."""
    stream.setblocking(False)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    loop = asyncio.get_running_loop()
    rest = ""
    while data := await loop.sock_recv(stream, 65536):
        *lines, rest = (rest + decoder.decode(data)).split("\n")
        for line in lines:
            words.append(line[:_LINE_CHARACTERS])
            report(words[-1])
        rest = rest[:_LINE_CHARACTERS]
    if rest:
        words.append(rest)


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread, to its end even when cancelled: no half of it goes on beside the clean-up."""
    done = asyncio.get_running_loop().run_in_executor(
        None, functools.partial(work, *args, **kwargs)
    )
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        done.exception()
        raise
    return done.result()
