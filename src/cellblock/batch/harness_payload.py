"""What our programs in a cell are started with: the harness of function tests, and checkers."""

from __future__ import annotations

import functools
import importlib.util
import json
import marshal
from collections.abc import Mapping
from pathlib import Path

_MODULES = ("values", "errors", "peer", "program", "tests", "main")
# Bytecode is used if it is of the same Python: compiling takes longer than a short program.
# Reads a frame, and leaves out the folders in which the program under test can put modules.
_READ = """\
import os, sys
def read():
    size, data = int(os.read(0, 8), 16), b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("The harness cannot read its input.")
        data += piece
    return data
def trusted(path, folders):
    def is_trusted(entry):
        if folders is None:
            return not os.access(entry, os.W_OK)
        return not any((entry + "/").startswith(folder + "/") for folder in folders)
    return [entry for entry in path if entry and is_trusted(entry)]
"""
START = (
    _READ
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
load(read() == _bootstrap_external.MAGIC_NUMBER, read(), read())(read, trusted)
"""
)
CRASHED = 70  # the exit code of a checker that has raised an exception, EX_SOFTWARE in sysexits.h
CHECKER_START = (
    _READ
    + f"""\
import json
code = read()
sys.path[:] = trusted(sys.path, json.loads(read()))
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


def harness_input(program: Mapping[str, object], tests: Mapping[str, object]) -> bytes:
    """Return the standard input of `START`: see `harness.main` for the two objects."""
    parts = json.dumps(program).encode(), json.dumps(tests).encode()
    return b"".join([_harness(), *map(_framed, parts)])


def checker_input(checker: str, distrusted: list[str] | None, case: Mapping[str, str]) -> bytes:
    """Return the standard input of `CHECKER_START`. The checker itself reads `case` as JSON."""
    parts = checker.encode(errors="replace"), json.dumps(distrusted).encode()
    return b"".join(map(_framed, parts)) + json.dumps(case).encode()


def _framed(data: bytes) -> bytes:
    return b"%08x" % len(data) + data
