"""Internals of CPython that depend on its version: finalization, fork, calls without a frame.

A cell is forked from a running interpreter and ends by `os._exit`, so it must do what the
interpreter does after a fork and before its end. There is no public interface for that. A version
that is not in `TESTED` is treated as the newest one in `_BEHAVIOURS` that is not newer.

See `Py_FinalizeEx` and `finalize_modules` in CPython's Python/pylifecycle.c.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

# The minor versions on which the tests run code. 3.10 is for images and environments only.
TESTED = ("3.10", "3.11", "3.12", "3.13")


class _Behaviour(NamedTuple):
    """How one version behaves.

    warning_location   file and line in warnings of code that is called without a frame
    last_error         attributes of `sys` for the exception that ended the program
    has_generations    the garbage collector can collect one generation
    """

    warning_location: tuple[str, int]
    last_error: tuple[str, ...]
    has_generations: bool


_LAST_ERROR = ("last_exc", "last_type", "last_value", "last_traceback")
_BEHAVIOURS = {
    (3, 10): _Behaviour(("sys", 1), _LAST_ERROR[1:], has_generations=True),
    (3, 12): _Behaviour(("sys", 1), _LAST_ERROR, has_generations=True),
    (3, 13): _Behaviour(("<sys>", 0), _LAST_ERROR, has_generations=True),
    # The collector of 3.14 is incremental: `gc.collect(1)` is one increment.
    (3, 14): _Behaviour(("<sys>", 0), _LAST_ERROR, has_generations=False),
}
_behaviour = _BEHAVIOURS[max(version for version in _BEHAVIOURS if version <= sys.version_info)]
# The program may replace them. Other modules are copied, see `stdlib_copy`.
_modules: dict[str, Any] = sys.modules
_current_frames = sys._current_frames  # pyright: ignore[reportPrivateUsage] - of CPython


def is_tested(version: str) -> bool:
    """Return True if the tests have run on Python `version`, such as "3.12" or "3.12.1"."""
    return ".".join(version.split(".")[:2]) in TESTED


# calls without a frame


def _make_caller() -> Callable[..., Any]:
    """Return a function that calls another one from a frame that names no file of Cellblock.

    At its end the interpreter calls finalizers and exit functions without a Python frame.
    """
    file, line = _behaviour.warning_location
    text = "lambda function, *arguments: function(*arguments)"
    code: CodeType = eval(text).__code__
    names = {"__name__": "sys", "__builtins__": builtins}
    return FunctionType(code.replace(co_filename=file, co_firstlineno=line), names)


call_without_frame = _make_caller()


# the fork


def freeze_and_make_main() -> ModuleType:
    """Exempt all objects from garbage collection and return a new `__main__` module.

    The module is created last: from 3.13 on, its dictionary is tracked from the beginning. Objects
    that only a frozen dictionary refers to would never be collected at the end.
    """
    gc.freeze()
    return ModuleType("__main__")


def renew_thread_id() -> None:
    """Update the native ID of the calling thread, which has changed by the fork."""
    # Not imported here: `threading` makes each fork slower by a quarter.
    if (threading := _modules.get("threading")) is not None:
        threading.current_thread()._set_native_id()


def renew_thread_names() -> None:
    """Restart the numbers in the names of new threads at 1."""
    if (threading := _modules.get("threading")) is not None:
        threading._counter = itertools.count(1).__next__


# the end


def set_last_error(error: BaseException) -> None:
    """Set the attributes of `sys` for the exception that ended the program."""
    values = error, type(error), error, error.__traceback__
    last = dict[str, object](zip(_LAST_ERROR, values, strict=True))
    sys.__dict__.update({name: last[name] for name in _behaviour.last_error})


def clear_last_error() -> None:
    """Delete the attributes that `set_last_error` has set."""
    for name in _behaviour.last_error:
        sys.__dict__.pop(name, None)


def run_exit_functions() -> None:
    """Join all threads but daemons, then run the functions of `atexit`."""
    if (threading := _modules.get("threading")) is not None:
        with contextlib.suppress(BaseException):
            threading._shutdown()
    try:  # not `contextlib`: using it here would copy its pages
        call_without_frame(atexit._run_exitfuncs)  # pyright: ignore[reportPrivateUsage] - of CPython
    except BaseException:
        pass


def release_modules(imported: Callable[[], Iterable[str]]) -> None:
    """Release `__main__` and the modules in `imported()`, in the interpreter's order.

    Each `__del__` runs, and each open file is flushed. `imported` is called after the first
    collection, whose finalizers may import more.
    """
    # Empty generations are skipped. A collection moves living objects to the next generation.
    oldest = _oldest_generation()
    # This also sorts living objects by their references: a file before its descriptor.
    call_without_frame(gc.collect, oldest)
    is_alone = len(_current_frames()) == 1
    if is_alone:
        _modules["warnings"] = None  # the interpreter has released it by now, and warns less
    streams = {"stdin": sys.__stdin__, "stdout": sys.__stdout__, "stderr": sys.__stderr__}
    last = dict.fromkeys(_behaviour.last_error)
    call_without_frame(sys.__dict__.update, last | streams)
    candidates = ("__main__", "__mp_main__", *imported())
    names = [name for name in candidates if name in _modules and name != "warnings"]
    dropped: list[object] = [_modules.pop(name) for name in names]  # code may put any object there
    modules = [weakref.ref(module) for module in dropped if isinstance(module, ModuleType)]
    call_without_frame(dropped.clear)
    call_without_frame(gc.collect, min(oldest + 1, 2))
    if not is_alone:
        return  # daemon threads still use the names; the interpreter would have stopped them
    for reference in reversed(modules):
        if (module := reference()) is not None:
            _clear_namespace(module.__dict__)


def _oldest_generation() -> int:
    if not _behaviour.has_generations:
        return 2
    return next((generation for generation in (2, 1) if gc.get_objects(generation)), 0)


def _clear_namespace(namespace: dict[str, object]) -> None:
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") == private:
                call_without_frame(namespace.__setitem__, name, None)
