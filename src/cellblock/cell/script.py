"""The fresh-process cell: run one file as ``python -u file.py`` would, or become another program.

The interpreter was started and warmed up before; the three functions here are what is left of ``python file.py``:
what comes before the code, what an exception does, and what happens at the end. The call of ``exec`` itself stands in the
bootstrap, at the bottom of the stack, so that user code has the depth of recursion that it would have there.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


def load(job: dict[str, Any]) -> tuple[CodeType, dict[str, Any]]:
    """Give the code of the job's script and the namespace to run it in; does not return for another program."""
    if job.get("env"):
        os.environ.update(job["env"])
    if job.get("script") is None:
        _become(job["argv"])
    _reseed()
    path: str = job["script"]
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
        __builtins__=sys.modules["builtins"],
    )
    _forget_ourselves()
    sys.modules["__main__"] = main
    sys.argv = [path]
    sys.orig_argv = [sys.executable, "-u", path]
    sys.path[0:0] = [os.path.dirname(path)]
    with open(path, "rb") as file:
        source = file.read()
    return compile(source, path, "exec", dont_inherit=True), main.__dict__


def _become(argv: list[str]) -> None:
    # Python ignores these two signals; programs expect the system's own handling.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        os.write(2, f"{argv[0]}: not found\n".encode())
        os._exit(_NOT_FOUND)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(_NOT_EXECUTABLE)


def _reseed() -> None:
    """Make what libraries drew while they were preloaded differ from cell to cell. `random` does so by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    temporary = sys.modules.get("tempfile")
    if temporary is not None:
        temporary._name_sequence = temporary.tempdir = None


def _forget_ourselves() -> None:
    """Take our own modules out of sight: user code may have a module of the same name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cellblock"]:
        del sys.modules[name]


def report(error: BaseException) -> int:
    """Do with an exception that left the script what the interpreter does; give the exit code (-2: by SIGINT)."""
    # The first entry of the traceback is our call of exec, or, for a syntax error, our call of compile.
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    if isinstance(error, SyntaxError) and trace is not None and trace.tb_frame.f_globals is globals():
        trace = None
    error.__traceback__ = trace
    if isinstance(error, SystemExit):
        return _exit_code(error.code)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException as second:
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(second), second, second.__traceback__)
    return -2 if isinstance(error, KeyboardInterrupt) else 1


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    with contextlib.suppress(Exception):
        print(code, file=sys.stderr)  # noqa: T201 - what the interpreter does
    return 1


def finish(status: int, namespace: dict[str, Any] | None) -> None:
    """End as the interpreter does: threads, exit functions, last words of objects, buffers. Does not return."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    with contextlib.suppress(BaseException):
        _drop(namespace)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    if status == -2:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _drop(namespace: dict[str, Any] | None) -> None:
    """Let go of the script's objects in the interpreter's order, so that each __del__ runs."""
    if namespace is None:
        return
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") == private:
                namespace[name] = None
    gc.collect()
