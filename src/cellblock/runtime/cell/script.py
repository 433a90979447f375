"""Run one file like ``python -u file.py``, or execute another program.

The interpreter is already started and warmed up. The functions here do the rest: what comes before
the code (`load`), the handling of an exception (`report_exception`), and the end (`finish`). The
call of ``exec`` is in `bootstrap`, at the bottom of the stack, so that user code has the recursion
depth that it has in a script.
"""

from __future__ import annotations

import _ast
import contextlib
import os
import resource
import signal
import sys
from importlib.machinery import FrozenImporter, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, ClassVar, NoReturn

from ..handshake import CellJob
from ..linux import syscalls
from . import early_exit, interpreter

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_FAILED = 1
_NO_FILE = 2
_READ_BYTES = 1 << 16
# Whether this interpreter creates annotations for a main module.
_HAS_ANNOTATIONS = hasattr(sys.modules["__main__"], "__annotations__")
# The script may replace them. Other modules are copied, see `stdlib_copy`.
_modules: dict[str, Any] = sys.modules
_settrace, _setprofile = sys.settrace, sys.setprofile
_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage] - of CPython


class _Baseline:
    """The state before the script.

    modules          all loaded modules, by identity
    our_modules      names of the modules of this package
    last_module      name of the module that was imported last
    notifies_exit    a successful script calls `early_exit.notify`
    needs_renewal   `_renew_after_fork` has something to do
    """

    modules: ClassVar[dict[str, int]] = {}
    our_modules: tuple[str, ...] = ()
    last_module: ClassVar[list[str]] = [""]
    notifies_exit = False
    needs_renewal = True


def record_baseline(*, notifies_exit: bool, for_blocks: bool) -> None:
    """Record the state before the script, once for all cells.

    In a cell, iterating over all modules would copy the pages of their names. `notifies_exit`: a
    successful script calls `early_exit.notify`. `for_blocks`: no module of this package is imported
    any more.
    """
    _Baseline.notifies_exit = notifies_exit
    _Baseline.needs_renewal = not sys.modules.keys().isdisjoint(_MODULES_WITH_FORK_STATE)
    _Baseline.our_modules = tuple(
        name for name in sys.modules if name.partition(".")[0] == "cellblock"
    )
    if for_blocks:
        _remove_our_modules()
        _Baseline.our_modules = ()
    _Baseline.modules = {name: id(module) for name, module in sys.modules.items()}


def _remove_our_modules() -> None:
    for name in _Baseline.our_modules:  # user code may have a module with this name
        del sys.modules[name]


def prepare_main() -> None:
    """Do the work that is possible before the script is known.

    It does no more than necessary, since a block may already wait. See `warmup.pretouch`.
    """
    _remove_our_modules()
    _flush()
    main = interpreter.freeze_and_make_main()
    if _Baseline.needs_renewal:
        _renew_after_fork(main)
    sys.modules["__main__"] = main


def load(job: CellJob) -> tuple[CodeType, dict[str, Any]]:
    """Return the code of the job's script, and the namespace to run it in.

    If the job is another program, execute it instead.
    """
    if job.stdin:
        _take_stdin(job.stdin)
    if job.address_space:
        _limit_address_space(job.address_space, is_script=job.script is not None)
    if job.env:
        os.environ.update(job.env)
    if job.cwd:
        os.chdir(job.cwd)
    if job.script is None:
        _exec_program(job.argv or ())
    path = job.script
    folder = path.rpartition("/")[0]
    namespace = sys.modules["__main__"].__dict__
    if _HAS_ANNOTATIONS:
        namespace["__annotations__"] = {}
    namespace.update(
        __builtins__=sys.modules["builtins"],
        __file__=path,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    _unload_shadowed(folder)
    _Baseline.last_module[:] = [next(reversed(sys.modules))]
    sys.argv = [path]
    sys.orig_argv = [sys.executable, "-u", path]
    sys.path[0:0] = [folder]
    code = job.code
    if code is None:
        code = _read(path)
    if job.shows_value:
        return _compile_showing_value(code, path), namespace
    return compile(code, path, "exec", dont_inherit=True), namespace


def _compile_showing_value(code: bytes, path: str) -> CodeType:
    tree: Any = compile(code, path, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    if tree.body and isinstance(tree.body[-1], _ast.Expr) and not code.rstrip().endswith(b";"):
        value = tree.body[-1].value
        place = {name: getattr(value, name) for name in value._attributes}
        load = _ast.Load()
        module = _ast.Call(
            _ast.Name("__import__", load, **place), [_ast.Constant("sys", **place)], [], **place
        )
        show = _ast.Attribute(module, "displayhook", load, **place)
        tree.body[-1].value = _ast.Call(show, [value], [], **place)
    return compile(tree, path, "exec", dont_inherit=True)


def _take_stdin(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.unlink(path)
    os.dup2(file, 0)
    os.close(file)


def _limit_address_space(size: int, *, is_script: bool) -> None:
    if is_script:  # another program replaces what is mapped now
        with open("/proc/self/statm", "rb") as file:
            size += int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _read(path: str) -> bytes:
    # Without the layers of `open`, whose pages would be copied.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        source = b""
        while piece := os.read(descriptor, _READ_BYTES):
            source += piece
        os.close(descriptor)
    except OSError as error:
        text = f"python: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        os.write(2, text.encode())
        os._exit(_NO_FILE)
    return source


def _exec_program(argv: tuple[str, ...]) -> NoReturn:
    # Python ignores these two signals, but programs expect the default handling.
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


def _unload_shadowed(folder: str) -> None:
    """Remove loaded libraries that modules next to the script shadow, as in a new interpreter."""
    # Files of blocks without a name may be many, and are not imported.
    others = [entry for entry in os.listdir(folder) if not entry.startswith("tmp_code_")]
    for name in {entry.partition(".")[0] for entry in others}:
        if (
            name not in sys.modules
            or name in sys.builtin_module_names
            or FrozenImporter.find_spec(name)
        ):
            continue
        # A folder without modules does not shadow the library.
        if (spec := PathFinder.find_spec(name, [folder])) and spec.loader:
            for loaded in [
                other for other in sys.modules if other == name or other.startswith(f"{name}.")
            ]:
                del sys.modules[loaded]


_MODULES_WITH_FORK_STATE = ("threading", "numpy.random", "tempfile", "__mp_main__")


def _renew_after_fork(main: ModuleType) -> None:
    """Renew seeds, counters and caches of preloaded libraries. `random` does so by itself."""
    interpreter.renew_thread_id()
    interpreter.renew_thread_names()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    temporary: Any = sys.modules.get("tempfile")
    if temporary is not None:
        temporary._name_sequence = temporary.tempdir = None
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def report_exception(error: BaseException) -> int:
    """Report an uncaught exception like the interpreter. Return the exit code, -2 for SIGINT."""
    # The first traceback entry is our call of exec, or, for a syntax error, of compile.
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
    interpreter.set_last_error(error)
    status = -2 if type(error) is KeyboardInterrupt else _FAILED
    if not hasattr(sys, "excepthook"):
        _print_error("sys.excepthook is missing\n", error)
        return status
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as second:
        return _exit_code(second.code)
    except BaseException as second:
        second.__context__ = None  # the script's exception, which is printed below
        second.__traceback__ = second.__traceback__ and second.__traceback__.tb_next
        _print_error("Error in sys.excepthook:\n", second)
        _print_error("\nOriginal exception was:\n", error)
    return status


def _print_error(heading: str, error: BaseException) -> None:
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


def finish(status: int) -> None:
    """End like the interpreter: threads, exit functions, finalizers, buffers. Never return."""
    try:
        _setprofile(None)
        _settrace(None)
        _flush()
        interpreter.run_exit_functions()
        _flush()
        # Remove the references of `bootstrap` to the script's objects. They are not arguments of
        # this function, because in 3.10 the caller's frame would keep a reference.
        interpreter.call_without_frame(
            _getframe(1).f_globals.update, {"code": None, "namespace": None, "failure": None}
        )
        try:
            release_modules()
        except BaseException:
            pass
        _flush()
        syscalls.flush_c_streams()
        if status == -2:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        if status == 0 and _Baseline.notifies_exit:
            early_exit.notify()
    finally:
        os._exit(status)  # whatever the script has changed


def _flush() -> None:
    for stream in (sys.stderr, sys.stdout):
        try:
            stream.flush()
        except BaseException:
            continue


def release_modules() -> None:
    """Release the script and the modules that it imported, in the interpreter's order."""
    interpreter.release_modules(_imported_modules)


def _imported_modules() -> list[str]:
    """Return the names of the modules that the script imported, in that order."""
    names = list[str]()
    (last,) = _Baseline.last_module
    if last in _modules:
        for name in reversed(_modules):
            if name == last:
                break
            # The same module may have been removed and added again.
            if id(_modules[name]) != _Baseline.modules.get(name):
                names.insert(0, name)
    return names
