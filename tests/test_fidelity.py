"""A Python block in the sandbox behaves as `python -u file.py` does, with and without preloaded libraries.

Each snippet is run twice in one sandbox: as a block, and by a shell block that starts a plain interpreter on the same
file. Exit code, stdout and stderr must be the same.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult
from cellblock.sync import SandboxCommandLineCodeExecutor

STANDARD = [
    "random",
    "tempfile",
    "uuid",
    "secrets",
    "logging",
    "asyncio",
    "multiprocessing.pool",
    "concurrent.futures",
]
LIBRARIES = [
    name
    for name in ("numpy", "pandas", "matplotlib.pyplot")
    if importlib.util.find_spec(name.partition(".")[0])
]

SNIPPETS = r'''
### namespace
print(sorted(dir()), __name__, __spec__, __package__, __doc__, __cached__, __builtins__, __file__)
print(type(__loader__), __loader__.name, __loader__.path, __loader__.get_source("__main__"))
try:
    __annotations__
except NameError as error:
    print(error)
x: int = 3
print(__annotations__, sorted(globals()))
### module main
import __main__, sys, importlib.util
print(__main__, vars(__main__) is globals(), sys.modules["__main__"] is __main__)
try:
    importlib.util.find_spec("__main__")
except ValueError as error:
    print(error)
### sys
import sys
print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix)
print(sys.dont_write_bytecode, sys.pycache_prefix, sys.warnoptions, sys._xoptions, sys.meta_path, sys.path_hooks)
print(sys.getrecursionlimit(), sys.getswitchinterval(), hasattr(sys, "ps1"), hasattr(sys, "last_value"))
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace(), sys.getprofile())
print(sys.unraisablehook is sys.__unraisablehook__, sys.breakpointhook is sys.__breakpointhook__)
### none of our modules
import sys
print([name for name in sys.modules if "cellblock" in name], [entry for entry in sys.path if "cellblock" in entry])
### modules with the names of ours
import cellblock, init, kernel, script, wire, zygote
print(cellblock, init, kernel, script, wire, zygote)
### a module that stands in for a library
import json, resource
print(resource.mine, json.loads("1"))
### site
import site, sysconfig
print(site.ENABLE_USER_SITE, site.PREFIXES, site.getsitepackages(), sysconfig.get_path("purelib"), help, exit)
### bytecode
import helper, os
print(helper.__cached__, helper.__file__, [name for name in os.listdir("__pycache__") if name.startswith("helper.")])
### standard streams
import sys
for file in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
    print(file, file.line_buffering, file.write_through, file.errors, file.isatty(), file.newlines, file.closed)
    print(type(file.buffer), file.buffer.raw if file is not sys.stdin else "", file.fileno())
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, repr(sys.stdin.read()))
### input at its end
try:
    input("prompt: ")
except EOFError as error:
    print(repr(error))
### encodings
import locale, sys
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), locale.getlocale(), locale.getpreferredencoding())
print(locale.setlocale(locale.LC_ALL), locale.getencoding(), sys.flags.utf8_mode, open(__file__).encoding, "é")
print("\ud800")
### descriptors
import os
for descriptor in range(64):
    try:
        print(descriptor, oct(os.fstat(descriptor).st_mode), os.get_inheritable(descriptor))
    except OSError:
        pass
### process
import os, resource as ours, sys
print(os.getcwd(), oct(os.umask(0)), os.getpgrp() == os.getpid() == os.getsid(0), os.nice(0), os.getpid() < 100)
print(sorted(set(os.environ) - {"PWD", "OLDPWD", "SHLVL", "_"}), os.environ["HOME"], os.environ["PATH"])
print([line for line in open("/proc/self/status") if line.startswith(("Sig", "Shd", "Cap", "NoNew", "Seccomp"))
       and not line.startswith(("SigCgt", "SigQ"))])
print(open("/proc/self/comm").read(), open("/proc/self/oom_score_adj").read(), os.readlink("/proc/self/exe"))
print([line for line in open("/proc/self/limits")])
### signals
import signal
print([(number, signal.getsignal(number)) for number in sorted(signal.valid_signals())], signal.pthread_sigmask(0, []))
### interpreter state
import faulthandler, gc, threading, tracemalloc, warnings
print(gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.get_debug(), gc.garbage)
print(faulthandler.is_enabled(), tracemalloc.is_tracing(), threading.stack_size(), threading.active_count())
print(threading.current_thread() is threading.main_thread(), threading.Thread().name)
print(threading.current_thread().native_id == threading.get_native_id(), threading.current_thread().name)
### error in the module
1/0
### error in a function
def f():
    g()
def g():
    raise ValueError("é")
f()
### chained error
try:
    1/0
except ZeroDivisionError as error:
    raise KeyError("x") from error
### error with context
try:
    1/0
except ZeroDivisionError:
    raise KeyError("x")
### error group and note
error = ExceptionGroup("a", [ValueError(1), TypeError(2)])
error.add_note("note")
raise error
### error with a long traceback
def f(n):
    if n == 0:
        raise ValueError
    f(n - 1)
f(50)
### error that cannot be printed
class E(Exception):
    def __str__(self):
        raise ValueError
raise E
### base exception
class E(BaseException):
    pass
raise E("x")
### traceback limit
import sys
sys.tracebacklimit = 1
def f():
    1/0
f()
### syntax error
print("never")
if x
    pass
### indentation error
def f():
return 1
### latin-1
# -*- coding: latin-1 -*-
print(len("é"))
### future import
from __future__ import annotations
x: Foo = 1
print(__annotations__)
### no future import
def f(x: int): pass
print(f.__annotations__)
### syntax error in an import
import broken
### syntax error at run time
exec("x =")
### missing module
import nothing_there
### recursion caught
def f():
    f()
try:
    f()
except RecursionError as error:
    print(error)
### deep recursion
import sys
sys.setrecursionlimit(10 ** 6)
def f(n):
    return 0 if n == 0 else 1 + f(n - 1)
print(f(20000))
### keyboard interrupt
raise KeyboardInterrupt
### subclass of keyboard interrupt
class K(KeyboardInterrupt):
    pass
raise K("x")
### SIGINT
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
### SIGTERM
import os, signal, time
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
### SIGPIPE
import os, signal
os.kill(os.getpid(), signal.SIGPIPE)
print("here")
### signal handler that exits
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(12))
os.kill(os.getpid(), signal.SIGTERM)
### alarm
import signal, time
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(5)
### abort
import os
print("x")
os.abort()
### os._exit
import os
print("a", end="")
os._exit(5)
### exit in finally
import sys
try:
    sys.exit(4)
finally:
    print("finally")
### exit by a subclass
class K(SystemExit):
    pass
raise K(6)
### exit code changed
error = SystemExit(3)
error.code = 8
raise error
### exit with what cannot be printed
import sys
class A:
    def __str__(self):
        raise ValueError
sys.exit(A())
### exit by site's functions
exit("bye")
### exit in a thread
import sys, threading
thread = threading.Thread(target=lambda: sys.exit(4))
thread.start()
thread.join()
print("x")
### warnings
import warnings
warnings.warn("w")
warnings.warn("d", DeprecationWarning)
def f():
    warnings.warn("in", UserWarning, stacklevel=2)
f()
warnings.warn("r", ResourceWarning)
open("/dev/null")
x = "\d"
### exit functions
import atexit
atexit.register(print, "one")
atexit.register(print, "two")
@atexit.register
def f():
    1/0
@atexit.register
def g():
    print(sorted(name for name in globals() if not name.startswith("__")))
print("end")
### exit functions after an error
import atexit, sys
atexit.register(lambda: print(sys.last_type, sys.last_value, sys.last_traceback.tb_lineno))
1/0
### exit function that exits
import atexit, sys
atexit.register(lambda: sys.exit(7))
### exit function that is interrupted
import atexit
@atexit.register
def f():
    raise KeyboardInterrupt
### last words
class A:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("del", self.name)
a, _b, c, __d = A("a"), A("b"), A("c"), A("d")
x = [A("cycle")]
x.append(x)
print("end")
### last words see the globals
import sys
class A:
    def __del__(self):
        print("del", sys, B)
class B:
    pass
a = A()
### last words of a traceback
class A:
    def __del__(self):
        print("del")
def f():
    a = A()
    raise ValueError("x")
f()
### last words of an imported module
import holder
print("end")
### last words of a generator, a finalizer and a context variable
import contextvars, threading, weakref
class A:
    def __del__(self):
        print("del")
def g():
    try:
        yield 1
    finally:
        print("closed")
x = g()
next(x)
a = A()
weakref.finalize(a, print, "finalizer")
local = threading.local()
local.a = A()
print("end")
### error in last words of a function's local
class A:
    def __del__(self):
        raise ValueError("x")
def f():
    A()
f()
print("after")
### modules that are none
import sys
sys.modules["odd"] = object()
sys.modules["none"] = None
class A:
    def __del__(self):
        print("del")
a = A()
### main taken away
import sys
class A:
    def __del__(self):
        print("del")
a = A()
del sys.modules["__main__"]
1/0
### threads are joined
import threading, time
def f():
    time.sleep(0.1)
    print("joined")
threading.Thread(target=f).start()
print("end")
### threads are joined after an error
import threading, time
def f():
    time.sleep(0.1)
    print("joined")
threading.Thread(target=f).start()
1/0
### daemon threads are not joined
import helper, threading, time
def f():
    while True:
        helper.x + len("busy")
threading.Thread(target=f, daemon=True).start()
print("end")
### error in a thread
import threading
def f():
    raise ValueError("in a thread")
thread = threading.Thread(target=f)
thread.start()
thread.join()
print("after")
### thread pool at the end
import time
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
pool.submit(lambda: (time.sleep(0.1), print("in the pool")))
print("end")
### exception hook
import sys
def hook(*what):
    print("hook", what[0], what[1])
sys.excepthook = hook
1/0
### exception hook that fails
import sys
def hook(*_):
    raise TypeError("bad hook")
sys.excepthook = hook
1/0
### exception hook that exits
import sys
sys.excepthook = lambda *_: sys.exit(9)
1/0
### exception hook that is none
import sys
sys.excepthook = None
1/0
### exception hook taken away
import sys
del sys.excepthook
1/0
### logging
import atexit, logging
logging.getLogger("x").warning("last resort")
logging.basicConfig()
logging.warning("w")
atexit.register(lambda: logging.error("at exit"))
try:
    1/0
except ZeroDivisionError:
    logging.exception("boo")
### stdout closed
import sys
sys.stdout.close()
### stdout none
import sys
sys.stdout = None
print("x")
### stdout wrapped
import io, sys
sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False))
print("buffered")
### stdout replaced
import sys
class Writer:
    def write(self, text):
        sys.__stdout__.write(f"[{text}]")
    def flush(self):
        sys.__stdout__.write("flush\n")
sys.stdout = Writer()
print("x")
### stderr none
import sys
sys.stderr = None
1/0
### output of C code
import ctypes
ctypes.CDLL(None).printf(b"from C\n")
### pickle
import collections, enum, pickle, typing
from dataclasses import dataclass
@dataclass
class P:
    x: "int" = 1
class C(enum.Enum):
    A = 1
T = collections.namedtuple("T", "x")
for value in (P(), C.A, T(1), P):
    print(repr(value), pickle.loads(pickle.dumps(value)) == value, pickle.dumps(value))
print(P.__module__, T.__module__, typing.get_type_hints(P))
### source
import inspect, linecache, sys
def f(x):
    return x
print(inspect.getsource(f), inspect.getsourcefile(f), inspect.getmodule(f), linecache.getline(__file__, 2))
print(inspect.getsource(sys.modules["__main__"]))
### runpy
import runpy
runpy.run_path("other.py", run_name="__main__")
runpy.run_module("other", run_name="name")
import __main__
print(__main__.__file__)
### script removed while it runs
import os
os.remove(__file__)
1/0
### folder changed
import os
os.chdir("/tmp")
print(__file__, os.path.exists(__file__))
1/0
### processes by fork
import os, sys
child = os.fork()
if child == 0:
    print("child")
    sys.exit(3)
print(os.waitpid(child, 0)[1])
### subprocess
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import sys; print(sys.flags, sys.path, sys.argv)"], capture_output=True))
### process pool
from concurrent.futures import ProcessPoolExecutor
def f(x):
    return x + 1
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(f, range(3))))
### error in a process
import multiprocessing
def f():
    raise ValueError("x")
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=f)
    process.start()
    process.join()
    print(process.exitcode, process.name)
### asyncio
import asyncio
async def fails():
    1/0
async def main():
    await asyncio.to_thread(print, "thread")
    asyncio.create_task(fails(), name="task")
    await asyncio.sleep(0.05)
asyncio.run(main())
fails()
print("end")
### doctest, argparse, breakpoint
import argparse, doctest
def f():
    """
    >>> 1 + 1
    3
    """
print(doctest.testmod())
argparse.ArgumentParser().print_usage()
breakpoint()
'''

MULTIPROCESSING = """
import multiprocessing, sys
class C:
    def __init__(self, value):
        self.value = value
def square(x):
    return x * x
def more(c):
    return C(c.value + 1)
def tell():
    print(__name__, sys.modules["__main__"].__file__, sys.argv, sys.path[0])
if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    with context.Pool(2) as pool:
        print(pool.map(square, range(4)), [(type(c), c.value) for c in pool.map(more, [C(1)])])
    process = context.Process(target=tell)
    process.start()
    process.join()
    print(process.exitcode, process.name, multiprocessing.current_process().name, multiprocessing.parent_process())
"""

EXITS = [
    "",
    "None",
    "0",
    "3",
    "256",
    "-1",
    "'text'",
    "True",
    "1.5",
    "(1, 2)",
    "2 ** 70",
    "-2 ** 70",
    "2 ** 31",
    "b'x'",
    "-2",
]

# Where a block does differ, and why that stays so.
DIFFERENCES = {
    "standard modules that cells need are loaded already": "import sys\nprint('socket' in sys.modules)",
    "the block stands above the bootstrap's frame": "import traceback\ntraceback.print_stack()",
    "so it has two levels of recursion less": (
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\nprint(f(0))"
    ),
    "the garbage collector leaves alone what was there before the fork": (
        "import gc\nprint(gc.get_freeze_count() > 0)"
    ),
    "the command line in /proc is that of the process it was forked from": "print(open('/proc/self/cmdline').read())",
    "modules that the block did not import are not taken apart": (
        "import json\nclass A:\n    def __del__(self):\n        print('del')\njson.mine = A()"
    ),
    "last words can still read the source for their traceback": "class A:\n    def __del__(self):\n        1/0\na = A()",
    "a source with NUL in it is refused in fewer words": "print(1)\n\0\n",
    "a source in an unknown encoding is refused in other words": "# -*- coding: nonsense -*-\nprint(1)\n",
}

FILES = {
    "broken.py": "def f(:\n",
    "helper.py": "x = 1\n",
    "holder.py": "class A:\n    def __del__(self):\n        print('del')\na = A()\n",
    "other.py": "import sys\nprint(__name__, __file__, __spec__, sys.argv)\n",
    "resource.py": "mine = 1\n",
    "json/data.txt": "",
    **{f"{name}.py": "" for name in ("cellblock", "init", "kernel", "script", "wire", "zygote")},
}


@pytest.fixture(scope="module", params=["bare", "preloaded"])
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxCommandLineCodeExecutor]:
    folder = tmp_path_factory.mktemp("work")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    preload = [*STANDARD, *LIBRARIES] if request.param == "preloaded" else []
    with SandboxCommandLineCodeExecutor(work_dir=folder, preload=preload, timeout=15) as executor:
        yield executor


def as_block(executor: SandboxCommandLineCodeExecutor, code: str) -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(f"# filename: tried.py\n{code}", "python")])


def as_plain(executor: SandboxCommandLineCodeExecutor, code: str) -> CodeResult:
    Path(executor.work_dir, "tried.py").write_text(f"# filename: tried.py\n{code}")
    return executor.execute_code_blocks([CodeBlock("exec /opt/env/bin/python -u /workspace/tried.py", "sh")])


def seen(result: CodeResult) -> tuple[int, str, str]:
    stdout, stderr = (re.sub("0x[0-9a-f]{6,}", "0x…", text) for text in (result.stdout, result.stderr))
    return result.exit_code, stdout, stderr


_PARTS = re.split(r"^### (.+)\n", SNIPPETS.strip(), flags=re.MULTILINE)


@pytest.mark.parametrize("code", _PARTS[2::2], ids=_PARTS[1::2])
def test_block_behaves_as_a_plain_interpreter(executor: SandboxCommandLineCodeExecutor, code: str) -> None:
    assert seen(as_block(executor, code)) == seen(as_plain(executor, code))


@pytest.mark.parametrize("value", EXITS)
def test_exit_behaves_as_in_a_plain_interpreter(executor: SandboxCommandLineCodeExecutor, value: str) -> None:
    code = f"import sys\nsys.exit({value})"
    assert seen(as_block(executor, code)) == seen(as_plain(executor, code))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_behaves_as_in_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, method: str
) -> None:
    code = MULTIPROCESSING.replace("METHOD", method)
    block = as_block(executor, code)
    assert seen(block) == seen(as_plain(executor, code))
    assert block.exit_code == 0


@pytest.mark.parametrize("code", DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_declared_difference_is_still_there(executor: SandboxCommandLineCodeExecutor, code: str) -> None:
    assert seen(as_block(executor, code)) != seen(as_plain(executor, code))


DRAWS = {
    "random": "import random\nprint(random.random(), random.Random().random())",
    "uuid": "import uuid\nprint(uuid.uuid4())",
    "uuid1": "import uuid\nprint(uuid.uuid1())",
    "secrets": "import secrets\nprint(secrets.token_hex())",
    "tempfile": "import tempfile\nprint(tempfile.mkdtemp())",
    "multiprocessing": "import multiprocessing\nprint(bytes(multiprocessing.current_process().authkey))",
    "numpy": "import numpy\nprint(numpy.random.rand(), numpy.random.randint(1 << 30))",
    "numpy's generator": "import numpy\nprint(numpy.random.default_rng().random())",
    "pandas": "import pandas\nprint(list(pandas.Series(range(10 ** 6)).sample(5)))",
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_a_library_draws_differs_from_run_to_run(
    executor: SandboxCommandLineCodeExecutor, name: str
) -> None:
    pytest.importorskip(re.sub(r"\W.*|1", "", name), reason=f"{name} is not installed")
    drawn = [
        executor.execute_code_blocks([CodeBlock(DRAWS[name], "python")]).check().output for _ in range(4)
    ]
    assert len(set(drawn)) == 4


def test_seeds_of_the_block_itself_hold(executor: SandboxCommandLineCodeExecutor) -> None:
    code = "import random\nrandom.seed(1)\nprint(random.random())"
    assert seen(as_block(executor, code)) == seen(as_plain(executor, code))


def test_files_left_open_are_written(executor: SandboxCommandLineCodeExecutor) -> None:
    module = "file = open('of_module.txt', 'w')\nfile.write('kept')\ndef f():\n    return file\n"
    Path(executor.work_dir, "opener.py").write_text(module)
    main = module.replace("of_module", "of_main")
    assert as_block(executor, f"import opener\n{main}").exit_code == 0
    assert [Path(executor.work_dir, name).read_text() for name in ("of_module.txt", "of_main.txt")] == [
        "kept"
    ] * 2


def test_folder_of_data_with_a_library_s_name_does_not_load_it_again(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    code = "import json, decoder_of\nprint(json.decoder.JSONDecoder is decoder_of.kind)"
    Path(executor.work_dir, "decoder_of.py").write_text("from json.decoder import JSONDecoder as kind\n")
    assert as_block(executor, code).output == "True\n"
