"""What our programs in a cell are started with: the harness of function tests, and checkers."""

from __future__ import annotations

import functools
import importlib.util
import json
import marshal
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_MODULES = ("tables", "values", "errors", "peer", "program", "tests", "main")
# What both start with. Before anything else is imported, it leaves out of `sys.path` the folders
# in which a program can have put modules: they come first, as a list that ends with NUL; "*" stands
# for all that can be changed. `os` and `sys` are imported already.
_BEGIN = """\
import os, sys
def read():
    size, data = int(os.read(0, 8), 16), b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("The harness cannot read its input.")
        data += piece
    return data
def is_trusted(entry):
    if folders is not None:
        return not any((entry + "/").startswith(folder + "/") for folder in folders)
    try:  # the owner of a folder can take away the right to write, and give it back
        os.chmod(entry, os.stat(entry).st_mode & 0o7777)
    except OSError:
        return not os.access(entry, os.W_OK)
    return False
def only_trusted(entries):
    return [entry for entry in entries if entry and is_trusted(entry)]
given_path, folders = list(sys.path), os.fsdecode(read()).split("\\0")
folders = None if folders == ["*"] else folders[:-1]
sys.path[:] = only_trusted(sys.path)
# For commands that the tests start. The path of Python is that of no virtual environment.
programs = os.pathsep.join(only_trusted(os.environ.get("PATH", os.defpath).split(os.pathsep)))
python = sys._base_executable
"""
# Bytecode is used if it is of the same Python: compiling takes longer than a short program.
START = (
    _BEGIN
    + """\
import json, marshal
from importlib import _bootstrap_external
from types import ModuleType
def load(is_same, code, source):
    modules = marshal.loads(code) if is_same else json.loads(source)
    package = sys.modules["harness"] = ModuleType("harness")
    package.__path__ = []
    for name, code in modules.items():
        module = sys.modules["harness." + name] = ModuleType("harness." + name)
        module.__package__ = "harness"
        exec(code, module.__dict__)
    return module.main
load(read() == _bootstrap_external.MAGIC_NUMBER, read(), read())(read, given_path, programs, python)
"""
)
CRASHED = 70  # the exit code of a checker that has raised an exception, EX_SOFTWARE in sysexits.h
CHECKER_START = (
    _BEGIN
    + f"""\
code = read()
os.environ["PATH"], sys.executable = programs, python
try:
    exec(compile(code, "checker.py", "exec"), {{"__name__": "__main__", "__file__": "checker.py"}})
except Exception as error:
    sys.__excepthook__(type(error), error, error.__traceback__.tb_next)
    sys.stderr.flush()
    os._exit({CRASHED})
"""
)


@functools.cache
def harness_sources() -> Mapping[str, str]:
    """Return the source of the harness by module, in the order in which they import each other."""
    folder = Path(__file__).parent / "harness"
    return {name: (folder / f"{name}.py").read_text("utf-8") for name in _MODULES}


def encode_harness(sources: Mapping[str, str]) -> bytes:
    """Return what `START` reads first: `sources`, and their bytecode for this Python."""
    codes = {
        name: compile(source, f"<harness {name}>", "exec", dont_inherit=True)
        for name, source in sources.items()
    }
    parts = importlib.util.MAGIC_NUMBER, marshal.dumps(codes), json.dumps(sources).encode()
    return b"".join(map(_framed, parts))


@functools.cache
def _harness() -> bytes:
    return encode_harness(harness_sources())


def harness_input(
    distrusted: Sequence[str] | None, program: Mapping[str, object], tests: Mapping[str, object]
) -> bytes:
    """Return the standard input of `START`: see `harness.main` for the two objects."""
    parts = json.dumps(program).encode(), json.dumps(tests).encode()
    return b"".join([_begin_input(distrusted), _harness(), *map(_framed, parts)])


def checker_input(distrusted: Sequence[str] | None, checker: str, case: Mapping[str, str]) -> bytes:
    """Return the standard input of `CHECKER_START`. The checker itself reads `case` as JSON."""
    code = _framed(checker.encode(errors="replace"))
    return _begin_input(distrusted) + code + json.dumps(case).encode()


def _begin_input(distrusted: Sequence[str] | None) -> bytes:
    """Return what `_BEGIN` reads: folders, or "*" for all that can be written to."""
    folders = ["*"] if distrusted is None else [*distrusted, ""]
    return _framed(os.fsencode("\0".join(folders)))


def _framed(data: bytes) -> bytes:
    return b"%08x" % len(data) + data
