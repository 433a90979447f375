"""Run commands of Cellblock as forks of one process that has imported it.

A start costs some milliseconds of CPU time instead of up to a second. The process that a test gets
is a child of the test's own process, with its environment, folder and files: only the start of the
interpreter and the imports are left out. Tests of these start `python -m cellblock` themselves.

The program takes requests from the socket whose descriptor is its argument. A request is a JSON
object with `arguments`, `cwd`, `environment` and `terminal` (true if standard input becomes the
controlling terminal of a new session), and the three standard files. The answer is the process ID.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from typing import Any, AnyStr

from cellblock.cli import main

# What each command imports when it is used.
_SESSION = ("cellblock.executors.session.sandbox", "cellblock.backends.sandbox")
_MODULES = {
    "batch": ("cellblock.cli.run_batch", "cellblock.cli.program_file"),
    "chat": (  # not chat.command: it would replace the command of the same name
        "cellblock.cli.chat.setup",
        "cellblock.cli.chat.terminal_loop",
        "openai.resources.chat",
        *_SESSION,
    ),
    "compat": ("cellblock.compat.check.report", "cellblock.compat.check.source_files"),
    "keys": (
        "cellblock.server.keys.key_store",
        "cellblock.server.state.schema",
        "sqlalchemy.dialects.sqlite",
        "alembic.script",
        "alembic.operations",
        "alembic.runtime.migration",
    ),
    "mcp": ("cellblock.server.doors.mcp.stdio", "cellblock.server.doors.mcp.loopback", *_SESSION),
    "repl": ("cellblock.cli.repl.loop", "IPython.core.inputtransformer2", *_SESSION),
    "run": ("cellblock.cli.run_blocks", "cellblock.executors.command_line.sandbox", *_SESSION),
    "serve": (
        "cellblock.server.process",
        "cellblock.server.doors.mcp.http",
        "sqlalchemy.dialects.sqlite",
        "uvicorn.protocols.http.h11_impl",
        *_SESSION,
    ),
}
_CLONE_PARENT = 0x8000
_CLONE = {"x86_64": 56, "aarch64": 220}  # the number of the system call
_MAX_BYTES = 1 << 18
_libc = ctypes.PyDLL(None, use_errno=True)


class CommandProcess(subprocess.Popen[AnyStr]):
    """`cellblock` with arguments: `Popen(["run", "-c", "1"], ...)`.

    If `terminal` is true, standard input is a terminal and becomes the controlling one.
    """

    def __init__(self, arguments: list[str], *, terminal: bool = False, **options: Any) -> None:
        self._terminal = terminal
        super().__init__(arguments, **options)

    def _execute_child(self, *values: Any) -> None:
        """Fork in the server instead of in this process."""
        base: Any = subprocess.Popen
        given = inspect.signature(base._execute_child).bind(self, *values).arguments
        files = [
            default if given[name] == -1 else given[name]
            for default, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        request = {
            "arguments": given["args"],
            "cwd": given["cwd"] or os.getcwd(),
            "environment": dict(os.environ) if given["env"] is None else given["env"],
            "terminal": self._terminal,
        }
        child: Any = self
        try:
            child.pid = _server().start(request, files)
            child._child_created = True
        finally:
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            child._close_pipe_fds(*(given[name] for name in ends))


def run_command(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run `cellblock` and wait for its end."""
    pipe = subprocess.PIPE
    with CommandProcess[bytes](list(arguments), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(given.encode() if isinstance(given, str) else given)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, out.decode(), err.decode())


class _Server:
    """The process that forks, as its parent sees it. It ends with its parent."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            number = str(theirs.fileno())
            argv = [sys.executable, "-P", __file__, number]  # no modules of this folder
            self._process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),))

    def start(self, request: dict[str, Any], files: list[int]) -> int:
        """Start a command, and return its process ID."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(_MAX_BYTES))


@functools.cache
def _server() -> _Server:
    return _Server()


def _serve(requests: socket.socket) -> None:
    """Fork for each request until the other end is closed. Return in the forked process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(requests, _MAX_BYTES, 3)
        if not data:
            os._exit(0)
        request = json.loads(data)
        for name in _MODULES.get(" ".join(request["arguments"][:1]), ()):
            importlib.import_module(name)
        gc.freeze()  # collections in forks do not write to the memory that they share
        if child := _fork_sibling():
            for file in files:
                os.close(file)
            requests.send(str(child).encode())
        else:
            requests.close()
            _become(request, files)
            return


def _fork_sibling() -> int:
    """Fork a child of this process's parent. Return its process ID, or 0 in the child."""
    ctypes.pythonapi.PyOS_BeforeFork()
    flags = _CLONE_PARENT | signal.SIGCHLD
    child = _libc.syscall(_CLONE[os.uname().machine], flags, 0, 0, 0, 0)
    if child:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone failed")
    return child


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Take over folder, environment and files of a request."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv = ["cellblock", *request["arguments"]]
    sys.path.insert(0, request["cwd"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: Any = getattr(sys, name)
        new: Any = open(
            number, "w" if number else "r", encoding=old.encoding, errors=old.errors, closefd=False
        )
        if new.name == 2:
            new.reconfigure(line_buffering=True)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run() -> None:
    """Run the command and exit as an interpreter does, but without deleting all modules."""
    code: object = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    end: Any = threading
    end._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _run()
