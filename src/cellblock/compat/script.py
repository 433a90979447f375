"""Run a script as `python script.py` does, with AutoGen's names installed."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from .finder import install

USAGE = """\
usage: python -m cellblock.compat SCRIPT [ARGUMENT ...]
       python -m cellblock.compat -m MODULE [ARGUMENT ...]

Run a Python program written for AutoGen 0.2 or 0.7. It is run unchanged, by Cellblock,
also if AutoGen is installed. To see what it needs: cellblock compat check SCRIPT
"""
NOTEBOOK = """\
{name} is a notebook, and only scripts can be run. Open it in Jupyter and write
`import cellblock.compat` into its first cell, or convert it: jupyter nbconvert --to script
"""
_MAIN = os.path.join(os.path.dirname(__file__), "__main__.py")
_LAUNCHERS = {_MAIN, __file__, runpy.__file__, "<frozen runpy>"}


def run(arguments: list[str]) -> None:
    """Run the program that `arguments` name. It ends this process as it would end its own.

    The exit code is 2 if there is no such program, or it is a notebook.
    """
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return
    is_module = arguments[:1] == ["-m"]
    program = arguments[is_module:]
    if not program or program[0].startswith("-"):
        sys.stderr.write(USAGE)
        sys.exit(2)
    if not is_module and program[0].endswith(".ipynb"):
        sys.stderr.write(NOTEBOOK.format(name=program[0]))
        sys.exit(2)
    install(force=True)
    sys.argv = program
    try:
        if is_module:
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            _run_file(program[0])
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = _without_launcher(sys.excepthook)
        raise


def _run_file(path: str) -> None:
    file_name = os.path.abspath(path)
    try:
        with io.open_code(file_name) as file:
            source = file.read()
    except OSError as error:
        _fail_to_open(file_name, error)
    if not sys.flags.safe_path:  # else `python -m` has put the current folder there
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    namespace = _new_main_module(file_name)
    exec(compile(source, file_name, "exec", dont_inherit=True), namespace)


def _fail_to_open(file_name: str, error: OSError) -> NoReturn:
    sys.stderr.write(
        f"{sys.executable}: can't open file {file_name!r}: [Errno {error.errno}] {error.strerror}\n"
    )
    sys.exit(2)


def _new_main_module(file_name: str) -> dict[str, Any]:
    """Replace the module `__main__` by an empty one, and return its namespace."""
    module = ModuleType("__main__")
    vars(module).update(
        __file__=file_name,
        __builtins__=builtins,
        __cached__=None,
        __annotations__={},
        __loader__=SourceFileLoader("__main__", file_name),
    )
    sys.modules["__main__"] = module
    return vars(module)


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _without_launcher(hook: _Hook) -> _Hook:
    """Return `hook` with tracebacks that begin in the program."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename in _LAUNCHERS:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    return show
