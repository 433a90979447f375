"""The Python that runs blocks, and the changeable environment on top of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import BackendError
from ..runtime.cell.interpreter import TESTED, is_tested
from .shebang import shebang_for, with_shebang

_QUERY_SCRIPT = """\
import json, os, sys
names = ("site-packages", "dist-packages")
folders = [entry for entry in sys.path if os.path.basename(entry) in names]
base = getattr(sys, "_base_executable", None) or sys.executable
prefixes = sorted({sys.base_prefix, sys.base_exec_prefix})
print(json.dumps([os.path.realpath(base), prefixes, folders, sys.version_info[:2]]))
"""
_QUERY_SECONDS = 60.0
_MAX_SCRIPT_BYTES = 1 << 16
_PIP_SCRIPT = """\
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python: its program, the folders that it needs, and the folders of its packages.

    is_explicit   the caller named it, so the commands of its packages are also available
    """

    program: str
    prefixes: tuple[str, ...]
    packages: tuple[str, ...]
    version: str
    is_explicit: bool = False

    def has_package(self, name: str) -> bool:
        """Return True if one of the folders contains the package `name`."""
        return any(os.path.isdir(os.path.join(folder, name)) for folder in self.packages)


_warned = set[str]()


def warn_if_untested(version: str) -> None:
    """Issue a `RuntimeWarning`, once for each version, if a Python version is not tested."""
    if is_tested(version) or version in _warned:
        return
    _warned.add(version)
    warnings.warn(
        f"Cellblock has not been tested on Python {version}, which runs the code here. At the end "
        f"of a block, files left open may not be written and __del__ may not run. Tested versions: "
        f"{', '.join(TESTED)}.",
        RuntimeWarning,
        stacklevel=2,
    )


def current_interpreter() -> Interpreter:
    """Return what belongs to the running Python."""
    program = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    packages = tuple(
        entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")
    )
    prefixes = tuple(sorted({sys.base_prefix, sys.base_exec_prefix}))
    return Interpreter(program, prefixes, packages, f"{sys.version_info[0]}.{sys.version_info[1]}")


@cache
def query_interpreter(python: str) -> Interpreter:
    """Ask `python` what belongs to it, which takes as long as it starts. Raise `BackendError`."""
    try:
        # Not the resolved path: Python finds its virtual environment by the name of the program.
        done = subprocess.run(
            [python, "-c", _QUERY_SCRIPT],
            capture_output=True,
            text=True,
            timeout=_QUERY_SECONDS,
            check=True,
            cwd="/",
        )
        program, prefixes, packages, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        output = getattr(error, "stderr", None) or error
        raise BackendError(
            f"{python} cannot be used as the Python of the blocks: {output}"
        ) from error
    return Interpreter(
        program, tuple(prefixes), tuple(packages), ".".join(map(str, version)), is_explicit=True
    )


def create_environment(
    folder: Path,
    interpreter: Interpreter,
    packages: Sequence[str],
    *,
    visible_path: str | None = None,
) -> Path:
    """Create a virtual environment in `folder`, which is empty and extends `packages` folders.

    Writes the files itself, which takes 1 ms. The commands of `packages` become its own, so that
    they run with its Python and see the same packages. `visible_path` is the path under which
    blocks see `folder`. Returns the path of its Python, as blocks see it.
    """
    python = f"{visible_path or folder}/bin/python"
    library = folder / "lib" / f"python{interpreter.version}" / "site-packages"
    library.mkdir(parents=True)
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "python3", f"python{interpreter.version}"):
        (programs / name).symlink_to(interpreter.program)
    home = os.path.dirname(interpreter.program)
    (folder / "pyvenv.cfg").write_text(
        f"home = {home}\ninclude-system-site-packages = false\nversion = {interpreter.version}\n"
    )
    (library / "_inherited.pth").write_text(
        _pth_lines([*packages, *_bundled_pip(packages, interpreter)])
    )
    for name in ("pip", "pip3"):
        (programs / name).write_text(shebang_for(python) + _PIP_SCRIPT)
        (programs / name).chmod(0o755)
    _install_commands(programs, command_dirs(packages, interpreter), python)
    return Path(python)


def command_dirs(packages: Iterable[str], interpreter: Interpreter) -> list[str]:
    """Return the folders with the commands of `packages` folders that are in virtual environments.

    Leaves out the packages of the running Python, unless the caller named it: they may have
    hundreds of commands, which would slow down every start. See `create_own_commands`.
    """
    own = () if interpreter.is_explicit else interpreter.packages
    return _command_dirs(folder for folder in packages if folder not in own)


def own_command_dirs(interpreter: Interpreter) -> list[str]:
    """Return the folders that `command_dirs` leaves out."""
    return [] if interpreter.is_explicit else _command_dirs(interpreter.packages)


def _command_dirs(packages: Iterable[str]) -> list[str]:
    folders = map(Path, packages)
    environments = dict.fromkeys(folder.parents[2] for folder in folders if len(folder.parents) > 2)
    return [str(folder / "bin") for folder in environments if (folder / "pyvenv.cfg").is_file()]


def create_own_commands(folder: Path, interpreter: Interpreter, python: str) -> None:
    """Create `folder` with the commands of the running Python's packages, which run with `python`.

    It can be shown to any number of environments.
    """
    folder.mkdir()
    _install_commands(folder, own_command_dirs(interpreter), python)


def own_commands(interpreter: Interpreter, python: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the commands that `create_own_commands` creates, by name: scripts, and links.

    Scripts that are large or not in UTF-8 are links, so that they run with their own Python.
    """
    scripts, links = dict[str, str](), dict[str, str]()
    for name, command in _find_commands(own_command_dirs(interpreter)):
        script = ""
        with contextlib.suppress(UnicodeDecodeError):
            script = _adapted_script(command, python, _MAX_SCRIPT_BYTES).decode()
        if script:
            scripts[name] = script
        else:
            links[name] = command
    return scripts, links


def _install_commands(programs: Path, folders: Iterable[str], python: str) -> None:
    """Put the commands of `folders` into `programs`: link them, or rewrite them for `python`."""
    for name, command in _find_commands(folders):
        target = f"{programs}/{name}"
        if os.path.exists(target):  # Python and pip
            continue
        if script := _adapted_script(command, python):
            with open(target, "wb") as file:
                file.write(script)
            os.chmod(target, 0o755)
        else:
            os.symlink(command, target)


def _find_commands(folders: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Return the names and paths of the commands in `folders`. The first one wins."""
    found = dict[str, str]()
    for folder in folders:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = f"{folder}/{name}"
            if os.path.isfile(path) and os.access(path, os.R_OK | os.X_OK):
                found.setdefault(name, path)
    return found.items()


def _adapted_script(command: str, python: str, max_bytes: int = -1) -> bytes:
    """Return a script of Python with `python` in its first line, and b"" for other programs."""
    with open(command, "rb") as file:
        if file.read(2) != b"#!":
            return b""
        content = b"#!" + file.read(max_bytes)
        is_whole = not file.read(1)
    changed = with_shebang(python, content)
    return changed if is_whole and changed != content else b""


def _pth_lines(folders: Iterable[str]) -> str:
    # A line that starts with `import` is executed. For a line with just the folder, Python would
    # ignore the .pth files in it.
    return "".join(
        f"import site, sys; {folder!r} in sys.path or site.addsitedir({folder!r})\n"
        for folder in folders
    )


def _bundled_pip(packages: Sequence[str], interpreter: Interpreter) -> list[str]:
    """Return the pip that comes with Python if `packages` contain none; uv installs none."""
    if any(Path(folder, "pip").is_dir() for folder in packages):
        return []
    for prefix in interpreter.prefixes:
        bundled = Path(prefix, "lib", f"python{interpreter.version}", "ensurepip", "_bundled")
        if wheels := sorted(bundled.glob("pip-*.whl")):
            return [str(wheels[-1])]
    return []
