"""Virtual environments: one folder for each set of requirements, built once by uv and shared.

A folder under its final name is complete. uv builds it under another name, and it is renamed at the
end, under a lock. A crash leaves only files that the next build removes. Later changes of an index
do not change an existing environment.

A cache that cannot be written is an error. There is no fallback to the temporary folder: old files
vanish there one by one, and an incomplete environment would pass for a complete one.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..aio.shielded import run_in_thread
from ..errors import BackendError, PackageError
from .interpreter import Interpreter, current_interpreter, query_interpreter
from .requirements import digest, display_names, file_state, normalise_requirements
from .uv import OnLine, UvInstaller, log_line, run_uv, user_cache_dir

_FORMAT = 2  # part of every digest; increase it when environments are built differently


async def environment_for(
    packages: Sequence[str],
    *,
    python: str | os.PathLike[str] | None = None,
    cache_dir: Path | None = None,
    progress: OnLine | None = None,
) -> Path:
    """Return the folder of a virtual environment with these requirements. Do not change it.

    Creates it if there is none for the same requirements, interpreter and index settings.
    `progress` is called with each line of uv; with None they are logged. `python` is an absolute
    path or a name in PATH; None means the running Python. `cache_dir` None means
    `cellblock/environments` in `$XDG_CACHE_HOME` or `~/.cache`; nothing is removed from there.
    A cancellation kills uv and removes what it created.

    Raise `PackageError`, with uv's own message, if a requirement is malformed or cannot be
    installed; `BackendError` if the interpreter, uv or the cache folder cannot be used.
    """
    requirements = normalise_requirements(packages)
    interpreter = await find_interpreter(None if python is None else os.fspath(python))
    entry = await run_in_thread(_find_cache_entry, requirements, interpreter, cache_dir)
    if not await run_in_thread(entry.environment.is_dir):
        on_line = progress or log_line
        async with entry.installer.lock(on_line) as lock:
            if not await run_in_thread(entry.environment.is_dir):
                await _build(entry, lock, on_line)
    return entry.environment


async def find_interpreter(python: str | None) -> Interpreter:
    """Return what belongs to `python`; None means the running one. Raise `BackendError`."""
    if python is None or python == sys.executable:
        return replace(current_interpreter(), is_explicit=python is not None)
    return await run_in_thread(query_interpreter, python)


def python_of(environment: Path) -> Path:
    """Return the path of the Python of a virtual environment."""
    return environment / "bin" / "python"


def context_of(environment: str | os.PathLike[str]) -> SimpleNamespace:
    """Return the context of a virtual environment that exists, as `create_virtual_env` does."""
    program = python_of(Path(os.path.abspath(environment)))
    return SimpleNamespace(env_exe=str(program), bin_path=str(program.parent))


def session_packages(environment: str | None, packages: Sequence[str]) -> tuple[str, ...]:
    """Return `packages`, and IPython if `environment` has none: sessions need it.

    None is the environment of this Python. Raise `BackendError`.
    """
    if environment is None:
        return tuple(packages)
    has_ipython = query_interpreter(context_of(environment).env_exe).has_package("IPython")
    return (*packages, *(() if has_ipython else ("ipython",)))


def site_packages(environment: Path) -> Path:
    """Return the folder from which a virtual environment imports packages."""
    for folder in sorted(environment.glob("lib/*/site-packages")):
        return folder
    raise BackendError(
        f"{environment} is not a virtual environment: it has no site-packages folder."
    )


def create_virtual_env(dir_path: str | os.PathLike[str], **env_args: object) -> SimpleNamespace:
    """Create a virtual environment and return its context: `env_exe`, `bin_path` and more.

    The paths of the context are absolute. `env_args` are those of `venv.EnvBuilder`. Without any,
    the environment has pip. Raise `BackendError`.
    """
    import venv  # rarely needed

    folder = os.path.abspath(dir_path)
    settings: dict[str, Any] = dict(env_args) or {"with_pip": True}
    builder = venv.EnvBuilder(**settings)
    try:
        builder.create(folder)
    except subprocess.CalledProcessError as error:
        output = (error.output or b"").decode(errors="replace").strip()
        raise BackendError(
            f"pip cannot be installed into {folder}: {output or error} "
            "On Debian, install python3-venv; or pass with_pip=False."
        ) from error
    except OSError as error:
        raise BackendError(f"No virtual environment can be created in {folder}: {error}") from error
    return builder.ensure_directories(folder)


@dataclass(frozen=True)
class _CacheEntry:
    """The place in the cache for a set of requirements and an interpreter."""

    installer: UvInstaller
    requirements: tuple[str, ...]
    interpreter: Interpreter

    @property
    def environment(self) -> Path:
        return self.installer.cache / self.installer.digest

    @property
    def partial_environment(self) -> Path:
        # The name of the environment that uv uses in its current folder.
        return self.installer.partial_dir / ".venv"


def _find_cache_entry(
    requirements: tuple[str, ...], interpreter: Interpreter, cache_dir: Path | None
) -> _CacheEntry:
    cache = (
        user_cache_dir("environments") if cache_dir is None else Path(os.path.abspath(cache_dir))
    )
    python = [interpreter.program, interpreter.version, *file_state(interpreter.program)]
    return _CacheEntry(
        UvInstaller(cache, digest(requirements, _FORMAT, python)), requirements, interpreter
    )


async def _build(entry: _CacheEntry, lock: int, on_line: OnLine) -> None:
    python = entry.interpreter
    venv = (
        "venv",
        "--no-project",
        "--relocatable",
        "--python",
        python.program,
        str(entry.partial_environment),
    )
    # Copies, because links would depend on uv's cache. Bytecode, because users cannot write it.
    install = (
        "pip",
        "install",
        "--link-mode",
        "copy",
        "--compile-bytecode",
        "--",
        *entry.requirements,
    )
    try:
        await run_in_thread(entry.installer.make_partial_dir)
        if output := await run_uv(venv, entry.installer, lock, on_line):
            raise BackendError(
                f"No environment can be created for {python.program}. uv says:\n{output}"
            )
        if entry.requirements and (output := await run_uv(install, entry.installer, lock, on_line)):
            raise PackageError(
                f"Cannot install {display_names(entry.requirements)} for Python "
                f"{python.version}. uv says:\n{output}"
            )
        await run_in_thread(_publish, entry)
    finally:
        await run_in_thread(entry.installer.remove_partial_dir)


def _publish(entry: _CacheEntry) -> None:
    # Sandboxed code runs as another user, and uv copies the modes of the files in its cache.
    with entry.installer.translate_errors():
        for folder, _, files in os.walk(entry.partial_environment):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                if not os.path.islink(path):
                    mode = stat.S_IMODE(os.stat(path).st_mode)
                    os.chmod(path, mode | 0o444 | (0o111 if mode & 0o100 else 0))
        os.rename(entry.partial_environment, entry.environment)
