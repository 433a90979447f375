"""Virtual environments: a set of requirements becomes a folder, made once by uv and shared by all who ask.

A folder under its final name is complete. It is built beside it and renamed at the end, under a lock, so a
crash on the way leaves only what the next builder removes. What an index offers later changes nothing in it.

A cache that cannot be written is an error, not a reason to take the temporary folder: old files vanish there
one by one, and an environment with holes would still pass for a complete one.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..errors import BackendError, PackageError
from .interpreter import Interpreter, find_interpreter
from .requirements import digest, names, normalised, state_of
from .uv import Report, Workshop, cache_folder, in_thread, run_uv, to_log

_FORMAT = 2  # part of every digest: raise it when environments are built differently


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

    Raises `PackageError`, with uv's own words, when a requirement is malformed or cannot be met; `BackendError`
    when the interpreter, uv or the cache folder cannot be used.
    """
    requirements = normalised(packages)
    interpreter = await find_interpreter(None if python is None else os.fspath(python))
    slot = await in_thread(_find_slot, requirements, interpreter, cache_dir)
    if not await in_thread(slot.environment.is_dir):
        report = progress or to_log
        async with slot.workshop.claim(report) as lock:
            if not await in_thread(slot.environment.is_dir):
                await _build(slot, lock, report)
    return slot.environment


def python_of(environment: Path) -> Path:
    """Give the interpreter of a virtual environment."""
    return environment / "bin" / "python"


def site_packages(environment: Path) -> Path:
    """Give the folder of a virtual environment from which its packages are imported."""
    for folder in sorted(environment.glob("lib/*/site-packages")):
        return folder
    raise BackendError(
        f"{environment} is not a virtual environment: it has no site-packages folder."
    )


def create_virtual_env(dir_path: str | os.PathLike[str], **env_args: object) -> SimpleNamespace:
    """Make a virtual environment in `dir_path` and give its context: `env_exe`, `bin_path` and more.

    `env_args` are those of `venv.EnvBuilder`; without any, the environment has pip. Raises `BackendError`.
    """
    import venv  # only who calls this needs it

    settings: dict[str, Any] = dict(env_args) or {"with_pip": True}
    builder = venv.EnvBuilder(**settings)
    try:
        builder.create(dir_path)
    except subprocess.CalledProcessError as error:
        said = (error.output or b"").decode(errors="replace").strip()
        raise BackendError(
            f"pip cannot be put into {os.fspath(dir_path)}: {said or error} "
            "On Debian install python3-venv; or give with_pip=False."
        ) from error
    except OSError as error:
        raise BackendError(
            f"No virtual environment can be made in {os.fspath(dir_path)}: {error}"
        ) from error
    return builder.ensure_directories(dir_path)


@dataclass(frozen=True)
class _Slot:
    """The one name in the cache for a set of requirements."""

    workshop: Workshop
    requirements: tuple[str, ...]
    interpreter: Interpreter

    @property
    def environment(self) -> Path:
        return self.workshop.cache / self.workshop.digest

    @property
    def unfinished(self) -> Path:
        # The name under which uv looks for an environment in its current folder.
        return self.workshop.folder / ".venv"


def _find_slot(
    requirements: tuple[str, ...], interpreter: Interpreter, cache_dir: Path | None
) -> _Slot:
    cache = cache_folder("environments") if cache_dir is None else Path(os.path.abspath(cache_dir))
    python = [interpreter.program, interpreter.version, *state_of(interpreter.program)]
    return _Slot(Workshop(cache, digest(requirements, _FORMAT, python)), requirements, interpreter)


async def _build(slot: _Slot, lock: int, report: Report) -> None:
    python = slot.interpreter
    venv = (
        "venv",
        "--no-project",
        "--relocatable",
        "--python",
        python.program,
        str(slot.unfinished),
    )
    # Copies: links would tie the environment to uv's cache. Bytecode now: readers cannot write it.
    install = (
        "pip",
        "install",
        "--link-mode",
        "copy",
        "--compile-bytecode",
        "--",
        *slot.requirements,
    )
    try:
        await in_thread(slot.workshop.prepare)
        if words := await run_uv(venv, slot.workshop, lock, report):
            raise BackendError(
                f"No environment can be made for {python.program}. uv says:\n{words}"
            )
        if slot.requirements and (words := await run_uv(install, slot.workshop, lock, report)):
            raise PackageError(
                f"Cannot install {names(slot.requirements)} for Python {python.version}. uv says:\n{words}"
            )
        await in_thread(_publish, slot)
    finally:
        await in_thread(slot.workshop.clear)


def _publish(slot: _Slot) -> None:
    # Sandboxed code is another user, and uv copies the modes that its cache has.
    with slot.workshop.trouble():
        for folder, _, files in os.walk(slot.unfinished):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                if not os.path.islink(path):
                    mode = stat.S_IMODE(os.stat(path).st_mode)
                    os.chmod(path, mode | 0o444 | (0o111 if mode & 0o100 else 0))
        os.rename(slot.unfinished, slot.environment)
