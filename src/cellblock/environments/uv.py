"""Run uv in a separate folder, under a lock, and report every line that it writes.

A crash leaves files in that folder, which the next build of the same thing removes.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..aio.shielded import run_in_thread
from ..errors import BackendError

if sys.platform != "win32":
    import fcntl

OnLine = Callable[[str], None]

_log = logging.getLogger(__name__)

_LOCK_POLL_SECONDS = 0.05
_EXIT_SECONDS = 30.0  # between the end of uv's output and its exit
_MAX_ERROR_LINES = 200  # of uv's output that an error quotes
_MAX_LINE_CHARACTERS = 4000
_ACTIVATION_ADVICE = "Activate with:"  # does not apply: executors use the environment themselves

# With these, uv would use another environment or interpreter, or install additional packages.
_REMOVED_VARIABLES = (
    "CONDA_PREFIX UV_BREAK_SYSTEM_PACKAGES UV_MANAGED_PYTHON UV_PROJECT UV_PYTHON "
    "UV_PYTHON_PREFERENCE UV_SYSTEM_PYTHON UV_VENV_SEED UV_WORKING_DIR VIRTUAL_ENV"
).split()


def log_line(line: str) -> None:
    """Write a line of uv to the log."""
    _log.info("uv: %s", line)


def user_cache_dir(kind: str) -> Path:
    """Return the user's cache folder for one kind of thing.

    Raise `BackendError` if there is no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG Base Directory Specification says to ignore relative paths.
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError as error:
        raise BackendError(
            "You have no home folder. Set XDG_CACHE_HOME to a folder for caches."
        ) from error
    return root / "cellblock" / kind


@dataclass(frozen=True)
class UvInstaller:
    """Where uv builds one thing, which is named by a digest of its inputs."""

    cache: Path
    digest: str

    @property
    def partial_dir(self) -> Path:
        """The folder for unfinished files."""
        return self.cache / f"{self.digest}.partial"

    @contextlib.asynccontextmanager
    async def lock(self, on_line: OnLine) -> AsyncGenerator[int]:
        """Hold the lock of this build, across all processes. Yield its descriptor."""
        await run_in_thread(self._make_cache)
        with self._open_lock() as lock:
            if not _try_lock(lock):
                on_line("Waiting for another process that builds the same environment.")
            # Polling, because a thread that blocks in flock could not be cancelled.
            while not _try_lock(lock):  # noqa: ASYNC110
                await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield lock.fileno()

    def _make_cache(self) -> None:
        with self.translate_errors():
            self.cache.mkdir(parents=True, exist_ok=True)

    def _open_lock(self) -> BinaryIO:
        with self.translate_errors():
            return open(self.cache / f"{self.digest}.lock", "ab")

    def make_partial_dir(self) -> None:
        """Create an empty `partial_dir`. The caller must hold the lock."""
        with self.translate_errors():
            # Its creator has died, and so has its uv, which would hold the lock too.
            self.remove_partial_dir()
            self.partial_dir.mkdir()
            # uv searches parent folders for project settings. This file ends the search.
            (self.partial_dir / "uv.toml").touch()

    def remove_partial_dir(self) -> None:
        """Remove `partial_dir`."""
        shutil.rmtree(self.partial_dir, ignore_errors=True)

    @contextlib.contextmanager
    def translate_errors(self) -> Generator[None]:
        """Translate an `OSError` into a `BackendError` about the cache folder."""
        try:
            yield
        except OSError as error:
            raise BackendError(
                f"Environments cannot be stored in {self.cache}: {error.strerror or error}. "
                "Set XDG_CACHE_HOME to a folder that you can write to."
            ) from error


def _try_lock(lock: BinaryIO) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


async def run_uv(
    arguments: Sequence[str], installer: UvInstaller, lock: int, on_line: OnLine
) -> str:
    """Run uv and pass every line of its output to `on_line`.

    Return its output if it failed, else "". Raise `BackendError` if that cannot be known.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise BackendError(
            "Packages cannot be installed while this process ignores SIGCHLD: it would not learn "
            "whether uv fails. Call signal.signal(signal.SIGCHLD, signal.SIG_DFL)."
        )
    lines: deque[str] = deque(maxlen=_MAX_ERROR_LINES)
    # A list, so that a cancellation during the start does not lose the process.
    started: list[subprocess.Popen[bytes]] = []
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                await run_in_thread(
                    _start_uv, started, arguments, installer, (lock, theirs.fileno())
                )
            await _read_lines(ours, lines, on_line)
        except BaseException:
            # No graceful end, because its files are discarded. It is not reaped yet, so the
            # process ID is still its own.
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            codes = [await run_in_thread(_reap, process) for process in started]
    return "" if codes == [0] else "\n".join([*lines, f"(exit code {codes[0]})"])


def _start_uv(
    started: list[subprocess.Popen[bytes]],
    arguments: Sequence[str],
    workshop: UvInstaller,
    files: tuple[int, int],
) -> None:
    from uv import find_uv_bin  # imported only for builds

    lock, output = files
    try:
        process = subprocess.Popen(
            [find_uv_bin(), "--color", "never", "--no-progress", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=workshop.partial_dir,
            env={
                name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES
            },
            start_new_session=True,
            # A uv that outlives us keeps the lock, so that no other build uses its folder.
            pass_fds=(lock,),
        )
    except OSError as error:
        raise BackendError(f"uv cannot be started: {error}. Reinstall the package uv.") from error
    started.append(process)


async def _read_lines(stream: socket.socket, tail: deque[str], on_line: OnLine) -> None:
    """Append every line of `stream` to `tail` and pass it to `on_line`."""
    stream.setblocking(False)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    loop = asyncio.get_running_loop()
    rest = ""
    while data := await loop.sock_recv(stream, 65536):
        *lines, rest = (rest + decoder.decode(data)).split("\n")
        for line in lines:
            if line.startswith(_ACTIVATION_ADVICE):
                continue
            tail.append(line[:_MAX_LINE_CHARACTERS])
            on_line(tail[-1])
        rest = rest[:_MAX_LINE_CHARACTERS]
    if rest:
        tail.append(rest)


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()
