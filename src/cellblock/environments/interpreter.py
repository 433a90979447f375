"""Which Python runs the blocks: what belongs to it, and an environment laid over it that blocks may change."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..errors import BackendError
from .uv import head_for, run_by

_ASK = """\
import json, os, sys
folders = [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([os.path.realpath(base), sorted({sys.base_prefix, sys.base_exec_prefix}), folders, sys.version_info[:2]]))
"""
_PATIENCE = 60.0
_PIP = """\
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python: its real program, the folders that it needs, and the folders of the packages that it imports.

    is_named   the caller named it, and so wants the commands of its packages as well
    """

    program: str
    prefixes: tuple[str, ...]
    packages: tuple[str, ...]
    version: str
    is_named: bool = False


async def find_interpreter(python: str | None) -> Interpreter:
    """Find out what belongs to `python`; `None` means the one that runs this. Raises `BackendError`."""
    if python is None or python == sys.executable:
        return replace(_own(), is_named=python is not None)
    return await asyncio.to_thread(_ask, python)


def _own() -> Interpreter:
    program = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    packages = tuple(
        entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")
    )
    prefixes = tuple(sorted({sys.base_prefix, sys.base_exec_prefix}))
    return Interpreter(program, prefixes, packages, f"{sys.version_info[0]}.{sys.version_info[1]}")


@cache
def _ask(python: str) -> Interpreter:
    try:
        # The name of the program stays as it is: in a virtual environment that is what tells Python where it is.
        done = subprocess.run(
            [python, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
            cwd="/",
        )
        program, prefixes, packages, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or error
        raise BackendError(
            f"{python} cannot be used as the Python of the blocks: {said}"
        ) from error
    return Interpreter(
        program, tuple(prefixes), tuple(packages), ".".join(map(str, version)), is_named=True
    )


def lay_environment(
    folder: Path, interpreter: Interpreter, packages: Sequence[str], *, seen_as: str | None = None
) -> Path:
    """Make a virtual environment in `folder` by hand, in a millisecond: empty, changeable, and above all `packages` folders.

    It has their commands as well, as its own, so that they run with its Python and see all that it sees.
    `seen_as` is the name under which the blocks will see `folder`. Gives the path of its Python, seen from there.
    """
    python = f"{seen_as or folder}/bin/python"
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
        _inherit([*packages, *_bundled_pip(packages, interpreter)])
    )
    for name in ("pip", "pip3"):
        (programs / name).write_text(head_for(python) + _PIP)
        (programs / name).chmod(0o755)
    for found in command_folders(packages, interpreter):
        _lay_commands(programs, Path(found), python)
    return Path(python)


def command_folders(packages: Iterable[str], interpreter: Interpreter) -> list[str]:
    """Give the folders that hold the commands of `packages` folders, which only virtual environments have for themselves.

    Not for the Python that runs this, as long as nobody named it: it may have hundreds, and each would cost every start.
    """
    folders = [
        Path(folder)
        for folder in packages
        if interpreter.is_named or folder not in interpreter.packages
    ]
    environments = dict.fromkeys(folder.parents[2] for folder in folders if len(folder.parents) > 2)
    return [str(folder / "bin") for folder in environments if (folder / "pyvenv.cfg").is_file()]


def _lay_commands(programs: Path, folder: Path, python: str) -> None:
    """Put the commands in `folder` into `programs`: those of Python anew, for `python`, and links to all others."""
    for command in _commands(folder):
        place = programs / command.name
        if place.exists():  # of two the first is the one whose package is imported; Python and pip are there already
            continue
        content = command.read_bytes() if _is_script(command) else b""
        if (changed := run_by(python, content)) != content:
            place.write_bytes(changed)
            place.chmod(0o755)
        else:
            place.symlink_to(command)


def _commands(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (
            path
            for path in folder.iterdir()
            if path.is_file() and os.access(path, os.R_OK | os.X_OK)
        )


def _is_script(program: Path) -> bool:
    with open(program, "rb") as file:
        return file.read(2) == b"#!"


def _inherit(folders: Iterable[str]) -> str:
    # A line that begins with `import` is run; the others are only names of folders, whose own .pth files would be ignored.
    return "".join(
        f"import site, sys; {folder!r} in sys.path or site.addsitedir({folder!r})\n"
        for folder in folders
    )


def _bundled_pip(packages: Sequence[str], interpreter: Interpreter) -> list[str]:
    """Give the pip that comes with Python, where `packages` hold none: environments made by uv do not."""
    if any(Path(folder, "pip").is_dir() for folder in packages):
        return []
    for prefix in interpreter.prefixes:
        bundled = Path(prefix, "lib", f"python{interpreter.version}", "ensurepip", "_bundled")
        if wheels := sorted(bundled.glob("pip-*.whl")):
            return [str(wheels[-1])]
    return []
