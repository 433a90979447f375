"""The fresh-process cell: run one file as ``python -u file.py`` would, or become another program.

The interpreter was started and warmed up before; the three functions here are what is left of ``python file.py``:
what comes before the code, what an exception does, and what happens at the end. The call of ``exec`` itself stands in the
bootstrap, at the bottom of the stack, so that user code has the depth of recursion that it would have there.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import itertools
import os
import signal
import sys
import weakref
from collections.abc import Callable
from importlib.machinery import FrozenImporter, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar

from ..linux import syscalls
from . import early_exit

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_FAILED = 1
_NO_FILE = 2
_READ = 1 << 16
_ANNOTATES = hasattr(
    sys.modules["__main__"], "__annotations__"
)  # whether this interpreter gives them to a main module
# The script may have replaced them by the time of its end; other modules have copies, see `library`.
_modules: dict[str, Any] = sys.modules
_settrace, _setprofile = sys.settrace, sys.setprofile
_getframe, _current_frames = sys._getframe, sys._current_frames


def _nowhere() -> Callable[..., object]:
    """Give what calls a function from no file of ours.

    At its end the interpreter calls finalizers and exit functions from no frame at all, for which warnings have a name.
    """
    file, line = ("<sys>", 0) if sys.version_info >= (3, 13) else ("sys", 1)
    text = "lambda function, *arguments: function(*arguments)"
    code: CodeType = eval(text).__code__
    return FunctionType(
        code.replace(co_filename=file, co_firstlineno=line),
        {"__name__": "sys", "__builtins__": builtins},
    )


_from_nowhere = _nowhere()


class _Known:
    """What was there before the script: all modules, by identity, the names of our own, and of the one imported last."""

    modules: ClassVar[dict[str, int]] = {}
    ours: tuple[str, ...] = ()
    last: ClassVar[list[str]] = [""]
    is_heard = False
    draws = True  # whether anything of what `_refresh` makes new is there


def look_around(*, is_heard: bool, is_for_blocks: bool) -> None:
    """Note what is there, once for all cells: to walk through all modules costs each of them a copy of every name.

    `is_heard`: a script that ends well is to say so; see `farewell`. `is_for_blocks`: none of ours is imported any more.
    """
    _Known.is_heard = is_heard
    _Known.draws = not sys.modules.keys().isdisjoint(_DRAWING)
    _Known.ours = tuple(name for name in sys.modules if name.partition(".")[0] == "cellblock")
    if is_for_blocks:
        _leave_out_ours()
        _Known.ours = ()
    _Known.modules = {name: id(module) for name, module in sys.modules.items()}


def _leave_out_ours() -> None:
    for name in _Known.ours:  # user code may have a module of the same name
        del sys.modules[name]


def prepare() -> None:
    """Do what can be done before the script is known, so that it has not to wait for it.

    No more: what a process touches for the first time must be copied, and somebody may wait already. See `practice.rehearse`.
    """
    _leave_out_ours()
    main = ModuleType("__main__")
    if _Known.draws:
        _refresh(main)
    sys.modules["__main__"] = main
    _flush()
    gc.freeze()  # what is there by now is no matter of the collection at the end


def load(job: dict[str, Any]) -> tuple[CodeType, dict[str, Any]]:
    """Give the code of the job's script and the namespace to run it in; does not return for another program.

    The script's text is in the job as `code` where it is short; else it is read.
    """
    if job.get("env"):
        os.environ.update(job["env"])
    if job.get("cwd"):
        os.chdir(job["cwd"])
    if job.get("script") is None:
        _become(job["argv"])
    path: str = job["script"]
    folder = path.rpartition("/")[0]
    namespace = sys.modules["__main__"].__dict__
    if (
        _ANNOTATES
    ):  # not in `prepare`: what holds a dictionary is seen by the collector, and frozen there
        namespace["__annotations__"] = {}
    namespace.update(
        __builtins__=sys.modules["builtins"],
        __file__=path,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    _make_room(folder)
    _Known.last[:] = [next(reversed(sys.modules))]
    sys.argv = [path]
    sys.orig_argv = [sys.executable, "-u", path]
    sys.path[0:0] = [folder]
    code: bytes | None = job.get("code")
    if code is None:
        code = _read(path)
    return compile(code, path, "exec", dont_inherit=True), namespace


def _read(path: str) -> bytes:
    # Without the layers of `open`, all of which would have to be copied.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        source = b""
        while piece := os.read(descriptor, _READ):
            source += piece
        os.close(descriptor)
    except OSError as error:
        os.write(
            2,
            f"python: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n".encode(),
        )
        os._exit(_NO_FILE)
    return source


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


def _make_room(folder: str) -> None:
    """Let a module beside the script come before a loaded library of its name, as it does at a fresh start."""
    # Those of blocks without a name of their own may be many, and nobody imports them.
    others = [entry for entry in os.listdir(folder) if not entry.startswith("tmp_code_")]
    for name in {entry.partition(".")[0] for entry in others}:
        if (
            name not in sys.modules
            or name in sys.builtin_module_names
            or FrozenImporter.find_spec(name)
        ):
            continue
        # A folder of data is no reason to load a library a second time.
        if (spec := PathFinder.find_spec(name, [folder])) and spec.loader:
            for loaded in [
                other for other in sys.modules if other == name or other.startswith(f"{name}.")
            ]:
                del sys.modules[loaded]


_DRAWING = ("threading", "numpy.random", "tempfile", "__mp_main__")


def _refresh(main: ModuleType) -> None:
    """Make what libraries drew, counted and noted while they were preloaded new. `random` does so by itself."""
    threading: Any = sys.modules.get(
        "threading"
    )  # not imported by us: it makes every fork dearer by a quarter
    if threading is not None:
        threading.current_thread()._set_native_id()
        threading._counter = itertools.count(1).__next__
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    temporary: Any = sys.modules.get("tempfile")
    if temporary is not None:
        temporary._name_sequence = temporary.tempdir = None
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def report(error: BaseException) -> int:
    """Do with an exception that left the script what the interpreter does; give the exit code (-2: by SIGINT)."""
    # The first entry of the traceback is our call of exec, or, for a syntax error, our call of compile.
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    if (
        isinstance(error, SyntaxError)
        and trace is not None
        and trace.tb_frame.f_globals is globals()
    ):
        trace = None
    error.__traceback__ = trace
    if isinstance(error, SystemExit):
        return _exit_code(error.code)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    status = -2 if type(error) is KeyboardInterrupt else _FAILED
    if not hasattr(sys, "excepthook"):
        _say("sys.excepthook is missing\n", error)
        return status
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as second:
        return _exit_code(second.code)
    except BaseException as second:
        second.__context__ = None  # the script's own exception, which is told of below
        second.__traceback__ = second.__traceback__ and second.__traceback__.tb_next
        _say("Error in sys.excepthook:\n", second)
        _say("\nOriginal exception was:\n", error)
    return status


def _say(heading: str, error: BaseException) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(heading)
        sys.__excepthook__(type(error), error, error.__traceback__)


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -sys.maxsize - 1 <= code <= sys.maxsize else 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(str(code))
    with contextlib.suppress(Exception):
        sys.stderr.write("\n")
    return _FAILED


def finish(status: int, namespace: dict[str, Any] | None) -> None:
    """End as the interpreter does: threads, exit functions, last words of objects, buffers. Does not return."""
    try:
        _setprofile(None)
        _settrace(None)
        _flush()
        if (threading := _modules.get("threading")) is not None:
            with contextlib.suppress(BaseException):
                threading._shutdown()
        try:  # not by `contextlib`, of which nothing was touched yet, and so copied
            _from_nowhere(atexit._run_exitfuncs)
        except BaseException:
            pass
        _flush()
        # The bootstrap and we let go of the script's objects, so that nothing but themselves keeps them.
        del namespace
        _from_nowhere(
            _getframe(1).f_globals.update, {"code": None, "namespace": None, "failure": None}
        )
        try:
            let_go()
        except BaseException:
            pass
        _flush()
        syscalls.flush_c_streams()
        if status == -2:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        if status == 0 and _Known.is_heard:
            early_exit.say()
    finally:
        os._exit(status)  # whatever the script did to what we need


def _flush() -> None:
    for stream in (sys.stderr, sys.stdout):
        try:
            stream.flush()
        except BaseException:
            continue


def let_go() -> None:
    """Drop the script and what it imported in the interpreter's order, so that each __del__ runs and each file is written."""
    # Generations in which nothing is need no look; what is alive moves to the next one.
    oldest = next((generation for generation in (2, 1) if gc.get_objects(generation)), 0)
    # Which also puts what is alive into the order of its references: a file before its descriptor.
    _from_nowhere(gc.collect, oldest)
    is_alone = len(_current_frames()) == 1
    if is_alone:
        _modules["warnings"] = None  # the interpreter does without it by now, and says less
    last = {"last_type": None, "last_value": None, "last_traceback": None}
    streams = {"stdin": sys.__stdin__, "stdout": sys.__stdout__, "stderr": sys.__stderr__}
    _from_nowhere(sys.__dict__.update, last | streams)
    names = [
        name
        for name in ("__main__", "__mp_main__", *_imported())
        if name in _modules and name != "warnings"
    ]
    dropped: list[object] = [_modules.pop(name) for name in names]  # anybody may put anything there
    modules = [weakref.ref(module) for module in dropped if isinstance(module, ModuleType)]
    _from_nowhere(dropped.clear)
    _from_nowhere(gc.collect, min(oldest + 1, 2))
    if not is_alone:
        return  # daemon threads would stumble over what is gone; the interpreter would have stopped them
    for reference in reversed(modules):
        if (module := reference()) is not None:
            _clear(module.__dict__)


def _imported() -> list[str]:
    """Give the names of the modules that the script imported, in that order."""
    names = list[str]()
    (last,) = _Known.last
    if last in _modules:
        for name in reversed(_modules):
            if name == last:
                break
            if id(_modules[name]) != _Known.modules.get(
                name
            ):  # else it was taken out and put back, and is ours as well
                names.insert(0, name)
    return names


def _clear(namespace: dict[str, Any]) -> None:
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") == private:
                _from_nowhere(namespace.__setitem__, name, None)
