"""Virtual environments: a set of requirements becomes a folder, made once by uv and shared by all who ask.

A folder under its final name is complete. It is built beside it and renamed at the end, under a lock, so a
crash on the way leaves only what the next builder removes. What an index offers later changes nothing in it.

A cache that cannot be written is an error, not a reason to take the temporary folder: old files vanish there
one by one, and an environment with holes would still pass for a complete one.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

from .errors import PackageError, PlaceError
from .places.interpreter import Interpreter, find_interpreter

P = ParamSpec("P")
T = TypeVar("T")
Report = Callable[[str], None]

_log = logging.getLogger(__name__)

_FORMAT = 1  # part of every digest: raise it when environments are built differently
_LOCK_POLL_SECONDS = 0.05
_END_SECONDS = 30.0  # between uv's last word and its end
_WORDS_KEPT = 200  # lines of uv's output that an error can quote
_LINE_CHARACTERS = 4000

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*"
    r"(?:\[(?P<extras>[A-Za-z0-9._,\s-]*)\]\s*)?"
    r"(?:@\s*(?P<url>[A-Za-z][A-Za-z0-9+.-]*:\S+)|(?P<versions>[<>=!~][^;@()]*|\([^;@()]*\))?)\s*"
    r"(?:;\s*(?P<marker>.+))?"
)

# The variables of uv that decide which files an environment gets. Others are about how they travel.
_CHOOSING = (
    "BUILD_CONSTRAINT CONFIG_FILE CONSTRAINT DEFAULT_INDEX EXCLUDE EXCLUDE_NEWER EXCLUDE_NEWER_PACKAGE "
    "EXTRA_INDEX_URL FIND_LINKS FORK_STRATEGY INDEX INDEX_STRATEGY INDEX_URL NO_BINARY NO_BINARY_PACKAGE "
    "NO_BUILD NO_BUILD_ISOLATION NO_BUILD_PACKAGE NO_CONFIG NO_INDEX NO_SOURCES ONLY_BINARY OVERRIDE "
    "PRERELEASE RESOLUTION TORCH_BACKEND"
).split()
# These would send uv to another environment or interpreter, or put more into it than was asked for.
_MISLEADING = (
    "CONDA_PREFIX UV_BREAK_SYSTEM_PACKAGES UV_MANAGED_PYTHON UV_PROJECT UV_PYTHON UV_PYTHON_PREFERENCE "
    "UV_SYSTEM_PYTHON UV_VENV_SEED UV_WORKING_DIR VIRTUAL_ENV"
).split()


async def environment_for(
    packages: Sequence[str],
    *,
    python: str | os.PathLike[str] | None = None,
    cache_dir: Path | None = None,
    progress: Report | None = None,
) -> Path:
    """Give the folder of a virtual environment with these requirements and what they need, to be read only.

    One is made when there is none for the same requirements, interpreter and index settings; `progress` gets
    uv's lines as they come (`None`: they are logged). `python` is an absolute path or a name in PATH; `None`
    means the one that runs this. `cache_dir` None means `cellblock/environments` in `$XDG_CACHE_HOME` or
    `~/.cache`; nothing is removed from there. A cancel kills uv and removes what it made.

    Raises `PackageError`, with uv's own words, when a requirement is malformed or cannot be met; `PlaceError`
    when the interpreter, uv or the cache folder cannot be used.
    """
    if isinstance(packages, str):
        raise PackageError(f"Packages must be a list of requirements, not the text {packages!r}.")
    requirements = tuple(sorted({_normalise(package) for package in packages}))
    interpreter = await find_interpreter(None if python is None else os.fspath(python))
    slot = await _in_thread(_find_slot, requirements, interpreter, cache_dir)
    if not await _in_thread(slot.environment.is_dir):
        report = progress or functools.partial(_log.info, "uv: %s")
        async with _claim(slot, report) as lock:
            if not await _in_thread(slot.environment.is_dir):
                await _build(slot, lock, report)
    return slot.environment


def python_of(environment: Path) -> Path:
    """Give the interpreter of a virtual environment."""
    return environment / "bin" / "python"


def site_packages(environment: Path) -> Path:
    """Give the folder of a virtual environment from which its packages are imported."""
    for folder in sorted(environment.glob("lib/*/site-packages")):
        return folder
    raise PlaceError(f"{environment} is not a virtual environment: it has no site-packages folder.")


def create_virtual_env(dir_path: str | os.PathLike[str], **env_args: object) -> SimpleNamespace:
    """Make a virtual environment in `dir_path` and give its context: `env_exe`, `bin_path` and more.

    `env_args` are those of `venv.EnvBuilder`; without any, the environment has pip. Raises `PlaceError`.
    """
    import venv  # only who calls this needs it

    settings: dict[str, Any] = dict(env_args) or {"with_pip": True}
    builder = venv.EnvBuilder(**settings)
    try:
        builder.create(dir_path)
    except subprocess.CalledProcessError as error:
        said = (error.output or b"").decode(errors="replace").strip()
        raise PlaceError(
            f"pip cannot be put into {os.fspath(dir_path)}: {said or error} "
            "On Debian install python3-venv; or give with_pip=False."
        ) from error
    except OSError as error:
        raise PlaceError(f"No virtual environment can be made in {os.fspath(dir_path)}: {error}") from error
    return builder.ensure_directories(dir_path)


def _normalise(package: str) -> str:
    """Give one spelling to requirements that mean the same. What is left is for uv to judge."""
    found = _REQUIREMENT.fullmatch(package.strip())
    if found is None or not package.strip().isprintable():
        raise PackageError(
            f"{package!r} is not a requirement. Write NAME, NAME>=VERSION or NAME @ URL; options and paths are refused."
        )
    name = _canonical(found["name"])
    extras = {_canonical(extra.strip()) for extra in (found["extras"] or "").split(",")} - {""}
    text = f"{name}[{','.join(sorted(extras))}]" if extras else name
    if found["url"]:
        text += f" @ {found['url']}"
    versions = re.sub(r"\s*([<>=!~]+)\s*", r"\1", (found["versions"] or "").strip("()")).split(",")
    text += ",".join(sorted(version.strip() for version in versions))
    return f"{text} ; {found['marker'].strip()}" if found["marker"] else text


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _stamp(requirement: str) -> list[int]:
    """Tell one content of a local file from the next."""
    _, _, url = requirement.partition(" @ ")
    if not url.startswith("file:"):
        return []
    path = unquote(urlsplit(url.partition(" ; ")[0]).path)
    if os.path.isdir(path):
        raise PackageError(f"{requirement!r} is a folder. Build a wheel and give its URL.")
    return _state(path)


def _state(path: str) -> list[int]:
    with contextlib.suppress(OSError):  # uv will say what is wrong with it
        found = os.stat(path)
        return [found.st_size, found.st_mtime_ns]
    return []


@dataclass(frozen=True)
class _Slot:
    """The one name in the cache for a set of requirements."""

    cache: Path
    digest: str
    requirements: tuple[str, ...]
    interpreter: Interpreter

    @property
    def environment(self) -> Path:
        return self.cache / self.digest

    @property
    def workshop(self) -> Path:
        return self.cache / f"{self.digest}.partial"

    @property
    def unfinished(self) -> Path:
        # The name under which uv looks for an environment in its current folder.
        return self.workshop / ".venv"


def _find_slot(requirements: tuple[str, ...], interpreter: Interpreter, cache_dir: Path | None) -> _Slot:
    cache = _default_cache() if cache_dir is None else Path(os.path.abspath(cache_dir))
    return _Slot(cache, _digest(requirements, interpreter), requirements, interpreter)


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # A relative one is to be ignored, says the specification of these folders.
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError as error:
        raise PlaceError("There is no home folder. Set XDG_CACHE_HOME to a folder for caches.") from error
    return root / "cellblock" / "environments"


def _digest(requirements: tuple[str, ...], interpreter: Interpreter) -> str:
    """Name everything that decides what is in the environment."""
    settings = {name: os.environ.get(f"UV_{name}", "") for name in _CHOOSING}
    named = [word for value in settings.values() for word in value.split()]
    facts = [
        _FORMAT,
        [[requirement, *_stamp(requirement)] for requirement in requirements],
        [interpreter.program, interpreter.version, *_state(interpreter.program)],
        settings,
        _contents([*named, *_configuration_files()]),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _configuration_files() -> list[str]:
    """Give the files that uv reads for the user and for the machine."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    machine = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    return [os.path.join(folder, "uv", "uv.toml") for folder in (home, *machine, "/etc")]


def _contents(paths: Sequence[str]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # not a file, or not there
            digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return digests


@contextlib.asynccontextmanager
async def _claim(slot: _Slot, report: Report) -> AsyncGenerator[int, None]:
    """Be the only one, among all processes, who builds this environment. Gives the lock's descriptor."""
    await _in_thread(_make_cache, slot)
    with _open_lock(slot) as lock:
        if not _try_lock(lock):
            report("Waiting for another process that builds the same environment.")
        # Asked again and again: a thread that sleeps in flock could not be cancelled.
        while not _try_lock(lock):  # noqa: ASYNC110
            await asyncio.sleep(_LOCK_POLL_SECONDS)
        yield lock.fileno()


def _make_cache(slot: _Slot) -> None:
    with _cache_trouble(slot):
        slot.cache.mkdir(parents=True, exist_ok=True)


def _open_lock(slot: _Slot) -> BinaryIO:
    with _cache_trouble(slot):
        return open(slot.cache / f"{slot.digest}.lock", "ab")


def _try_lock(lock: BinaryIO) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextlib.contextmanager
def _cache_trouble(slot: _Slot) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise PlaceError(
            f"Environments cannot be kept in {slot.cache}: {error.strerror or error}. "
            "Set XDG_CACHE_HOME to a folder that you can write to."
        ) from error


async def _build(slot: _Slot, lock: int, report: Report) -> None:
    python = slot.interpreter
    venv = ("venv", "--no-project", "--relocatable", "--python", python.program, str(slot.unfinished))
    # Copies: links would tie the environment to uv's cache. Bytecode now: readers cannot write it.
    install = ("pip", "install", "--link-mode", "copy", "--compile-bytecode", "--", *slot.requirements)
    try:
        await _in_thread(_prepare, slot)
        if words := await _run_uv(venv, slot, lock, report):
            raise PlaceError(f"No environment can be made for {python.program}. uv says:\n{words}")
        if slot.requirements and (words := await _run_uv(install, slot, lock, report)):
            # Without the URLs: they may hold passwords.
            names = ", ".join(requirement.partition(" @ ")[0] for requirement in slot.requirements)
            raise PackageError(f"Cannot install {names} for Python {python.version}. uv says:\n{words}")
        await _in_thread(_publish, slot)
    finally:
        await _in_thread(shutil.rmtree, slot.workshop, ignore_errors=True)


def _prepare(slot: _Slot) -> None:
    with _cache_trouble(slot):
        # Whoever made it is dead: its uv would hold the lock as well.
        shutil.rmtree(slot.workshop, ignore_errors=True)
        slot.workshop.mkdir()
        # uv searches upwards from its current folder for settings of a project; this one ends the search.
        (slot.workshop / "uv.toml").touch()


def _publish(slot: _Slot) -> None:
    # Sandboxed code is another user, and uv copies the modes that its cache has.
    with _cache_trouble(slot):
        for folder, _, files in os.walk(slot.unfinished):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                if not os.path.islink(path):
                    mode = stat.S_IMODE(os.stat(path).st_mode)
                    os.chmod(path, mode | 0o444 | (0o111 if mode & 0o100 else 0))
        os.rename(slot.unfinished, slot.environment)


async def _run_uv(arguments: Sequence[str], slot: _Slot, lock: int, report: Report) -> str:
    """Run uv to its end, every line to `report`. Gives what it said when it failed, else nothing."""
    words: deque[str] = deque(maxlen=_WORDS_KEPT)
    # A list, so that a cancellation while it starts does not lose it.
    started: list[subprocess.Popen[bytes]] = []
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                await _in_thread(_start_uv, started, arguments, slot, (lock, theirs.fileno()))
            await _follow(ours, words, report)
        except BaseException:
            # At once: nothing that it makes is kept. It is not reaped yet, so the number is still its own.
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            codes = [await _in_thread(_reap, process) for process in started]
    return "" if codes == [0] else "\n".join([*words, f"(exit code {codes[0]})"])


def _start_uv(started: list[subprocess.Popen[bytes]], arguments: Sequence[str], slot: _Slot, files: tuple[int, int]) -> None:
    from uv import find_uv_bin  # only a build needs it

    lock, output = files
    try:
        process = subprocess.Popen(
            [find_uv_bin(), "--color", "never", "--no-progress", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=slot.workshop,
            env={name: value for name, value in os.environ.items() if name not in _MISLEADING},
            start_new_session=True,
            # A uv that outlives us keeps the lock: nobody builds in the folder in which it still writes.
            pass_fds=(lock,),
        )
    except OSError as error:
        raise PlaceError(f"uv cannot be started: {error}. Install the package uv again.") from error
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


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread, to its end even when cancelled: no half of it goes on beside the clean-up."""
    done = asyncio.get_running_loop().run_in_executor(None, functools.partial(work, *args, **kwargs))
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        done.exception()
        raise
    return done.result()
