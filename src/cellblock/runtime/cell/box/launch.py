"""Fork a process that becomes a command, or works on files."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from ...box_orders import RunCommand
from ...linux import syscalls

_signal: Any = importlib.import_module("_signal")  # without enums, which cost time
_SIG_DFL, _SIG_IGN = 0, 1
_CLOSE_ON_EXEC = 4  # CLOSE_RANGE_CLOEXEC
_LAST_DESCRIPTOR = 0x7FFFFFFF
_REPORT = struct.Struct("<ci")
# Steps of a start that can fail.
CONFINE, ENTER_FOLDER, EXECUTE = b"c", b"f", b"x"


class StartFailure(NamedTuple):
    """The step that failed, and its error number."""

    step: bytes
    errno: int


class Home(NamedTuple):
    """How processes of a box start.

    folder        the work folder
    environment   the variables of commands
    confine       apply the confinement of sessions
    release       in a fork, close what belongs to the first process
    """

    folder: str
    environment: dict[bytes, bytes]
    confine: Callable[[], None]
    release: Callable[[], None]


def launch(order: RunCommand, home: Home, descriptors: Sequence[int]) -> tuple[int, int]:
    """Fork a process that becomes the command of `order`. Raise `OSError`, or `ValueError`.

    `descriptors` become its standard streams. The first one is that of `/dev/null` if it is -1.
    Return the process ID and a descriptor, see `read_failure`.
    """
    argv = [_encode(argument) for argument in order.argv]
    folder = os.path.join(home.folder, order.cwd)
    environment = dict(home.environment)
    if b"PWD" in environment:
        environment[b"PWD"] = _encode(folder)
    for name, value in order.env:
        environment[_encode(name)] = _encode(value)
    if not argv or any(b"\0" in word for word in (*argv, *environment, *environment.values())):
        raise ValueError("an argument, the folder or a variable is not valid")
    if any(not name or b"=" in name for name in environment):
        raise ValueError("the name of a variable is not valid")
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = syscalls.fork_without_hooks()
        if pid == 0:
            _become(argv, _encode(folder), environment, home.confine, descriptors, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


def read_failure(reader: int) -> StartFailure | None:
    """Return why the program could not be started, once `reader` can be read.

    Return None if it was started, or its process was killed before.
    """
    with contextlib.suppress(OSError):
        data = os.read(reader, _REPORT.size)
        if len(data) == _REPORT.size:
            return StartFailure(*_REPORT.unpack(data))
    return None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _become(
    argv: list[bytes],
    folder: bytes,
    environment: dict[bytes, bytes],
    confine: Callable[[], None],
    descriptors: Sequence[int],
    report: int,
) -> NoReturn:
    step, failure = CONFINE, errno.EINVAL
    try:
        lead_session(descriptors)
        for number in range(1, signal.NSIG):
            if _signal.getsignal(number) == _SIG_IGN:
                _signal.signal(number, _SIG_DFL)
        confine()
        _close_on_exec()
        step = ENTER_FOLDER
        os.chdir(folder)
        step = EXECUTE
        _execute(argv, environment)
    except OSError as error:
        failure = error.errno or errno.EINVAL
    except BaseException:
        pass
    os.write(report, _REPORT.pack(step, failure))
    os._exit(127)


def lead_session(descriptors: Sequence[int]) -> None:
    """In a fork: lead a session of processes, with `descriptors` as standard streams.

    -1 is that of `/dev/null`.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    # A new open file: what a process does to a shared one, such as a lock, outlives the process.
    null = os.open("/dev/null", os.O_RDWR)
    for target, source in enumerate(descriptors):
        os.dup2(null if source < 0 else source, target)
    os.close(null)


def _close_on_exec() -> None:
    """Let no other descriptor reach the program, also none that a library has made inheritable."""
    try:
        syscalls.syscall(
            syscalls.CLOSE_RANGE, 3, _LAST_DESCRIPTOR, _CLOSE_ON_EXEC, name="close_range"
        )
    except OSError:  # a kernel without it
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if int(name) > 2:
                    os.set_inheritable(int(name), False)


def _execute(argv: list[bytes], environment: dict[bytes, bytes]) -> NoReturn:
    """Execute the program `argv[0]`, which is looked up in the `PATH` of `environment`.

    Raise `OSError`.
    """
    program, failure = argv[0], OSError(errno.ENOENT, "")
    folders = [b""]
    if b"/" not in program:
        folders = environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    for folder in folders:
        path = os.path.join(folder, program)
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            if os.path.exists(path):  # and not in a folder that it cannot search
                failure = error
    raise failure
