"""The pieces of Python that prepare a session. They leave no names behind.

Data is JSON inside a Python literal, so that nothing in it can end the literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import cast

from ..workspace.workspace import OUTSIDE_WORKSPACE_TEXT
from .dialects import FILES_FOLDER

# The mark shows later that the session is still the same one.
ENTER_FOLDER = (
    f'__import__("os").chdir({FILES_FOLDER!r}); __import__("sys")._cellblock_is_prepared = True'
)
CHECK_MARK = '__import__("sys")._cellblock_is_prepared'
LIST_PACKAGES = """
def _cellblock_packages():
    import json
    from importlib.metadata import distributions
    print(json.dumps(sorted({d.metadata["Name"] or "" for d in distributions()} - {""})))
_cellblock_packages()
del _cellblock_packages
"""
_SAVE_FILE = """
def _cellblock_save():
    import json, os
    top, name, text = json.loads({data!r})
    if not os.path.realpath(name).startswith(os.path.join(os.path.realpath(top), "")):
        return print({outside!r})  # a link leads out of the folder
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w", encoding="utf-8", newline="") as file:
        file.write(text)
_cellblock_save()
del _cellblock_save
"""
# Kernels do not show what child processes write to the terminal, so it is printed at the end. The
# last value is the exit code.
_RUN_SHELL = """
def _cellblock_shell():
    import json, subprocess, sys, tempfile
    del globals()["_cellblock_shell"]
    argv, source = json.loads({data!r})
    if argv[0].startswith("python"):
        argv[0] = sys.executable
    file = tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8")
    with file, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        file.write(source)
        file.flush()
        # The first program says if the second is missing.
        run = ["sh", "-c", 'exec "$0" "$@"', *argv, file.name]
        try:
            code = subprocess.call(run, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        finally:
            for output, stream in ((out, sys.stdout), (err, sys.stderr)):
                output.seek(0)
                while data := output.read(1 << 20):
                    stream.write(data.decode(errors="replace"))
    return code if code >= 0 else 128 - code
_cellblock_shell()
"""
_REQUIREMENT_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def parse_packages(stdout: str) -> set[str]:
    """Return the names that `LIST_PACKAGES` printed. Raise `ValueError` if it printed others."""
    names: object = json.loads(stdout.strip().rpartition("\n")[2])
    if not isinstance(names, list) or not all(
        isinstance(name, str) for name in cast("list[object]", names)
    ):
        raise ValueError("not a list of names")
    return set(cast("list[str]", names))


def missing_packages(requirements: Iterable[str], available: Iterable[str]) -> list[str]:
    """Return the requirements whose package is not in `available`. Versions are not compared."""
    names = {_canonical(name) for name in available}
    return [item for item in requirements if _canonical(_package_name(item)) not in names]


def code_to_save_file(name: str, text: str) -> str:
    """Return code that writes `text` to the file `name` in the folder of the session.

    It prints `OUTSIDE_WORKSPACE_TEXT` instead if a link leads out of the folder.
    """
    data = json.dumps([FILES_FOLDER, f"{FILES_FOLDER}/{name}", text])
    return _SAVE_FILE.format(data=data, outside=OUTSIDE_WORKSPACE_TEXT)


def code_to_run_shell(argv: Sequence[str], text: str) -> str:
    """Return code that runs `text` by `argv`, a shell. Its last value is the exit code."""
    return _RUN_SHELL.format(data=json.dumps([argv, text]))


def _package_name(requirement: str) -> str:
    found = _REQUIREMENT_NAME.match(requirement)
    return found[1] if found else requirement


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
