"""Start the processes of a box: those that become commands."""

from __future__ import annotations

import contextlib
import errno
import importlib
import marshal
import os
import signal
import socket
import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, NoReturn

from ...box_orders import RunCommand
from ...linux import syscalls

_signal: Any = importlib.import_module("_signal")  # without enums, which cost time
_SIG_DFL, _SIG_IGN = 0, 1
_CLOSE_ON_EXEC = 4  # CLOSE_RANGE_CLOEXEC
_FIRST_DESCRIPTOR, _LAST_DESCRIPTOR = 3, 0x7FFFFFFF  # besides the standard streams
_MAX_MESSAGE, _MAX_DESCRIPTORS = 1 << 16, 4  # to a process that waits
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
    """

    folder: str
    environment: dict[bytes, bytes]
    confine: Callable[[], None]


class CommandStart(NamedTuple):
    """What a process needs to become a command."""

    argv: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]

    @classmethod
    def of(cls, order: RunCommand, home: Home) -> CommandStart:
        """Return that of `order`. Raise `ValueError` for what no program can get."""
        folder = os.path.join(home.folder, order.cwd)
        environment = dict(home.environment)
        if b"PWD" in environment:
            environment[b"PWD"] = _encode(folder)
        environment |= {_encode(name): _encode(value) for name, value in order.env}
        argv = [_encode(argument) for argument in order.argv]
        if not argv or any(b"\0" in word for word in (*argv, *environment, *environment.values())):
            raise ValueError("an argument, the folder or a variable is not valid")
        if any(not name or b"=" in name for name in environment):
            raise ValueError("the name of a variable is not valid")
        return cls(argv, _encode(folder), environment)


class Launcher:
    """Starts commands. It keeps a process ready, which has all but the program."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._spare_pid = 0
        self._spare: socket.socket | None = None

    def start(self, order: RunCommand, descriptors: Sequence[int]) -> tuple[int, int]:
        """Let a process become the command of `order`. Raise `OSError`, or `ValueError`.

        `descriptors` become its standard streams. The first one is that of `/dev/null` if it is -1.
        Return the process ID and a descriptor, see `read_failure`.
        """
        start = CommandStart.of(order, self._home)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(reader, False)
            passed = [writer, *descriptors]
            pid = self._use_spare(start, passed) or self._fork(start, passed)
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        return pid, reader

    def _fork(self, start: CommandStart, descriptors: Sequence[int]) -> int:
        pid = syscalls.fork_without_hooks()
        if pid == 0:
            with _reporting_failure(descriptors[0]) as report:
                _prepare(self._home)
                _become(start, descriptors, report)
        return pid

    def _use_spare(self, start: CommandStart, descriptors: Sequence[int]) -> int:
        """Return the process ID of the process that was ready, 0 if there is none."""
        message = marshal.dumps(tuple(start))
        if (spare := self._spare) is None or len(message) > _MAX_MESSAGE:
            return 0
        self._spare = None
        with spare:
            try:
                os.kill(self._spare_pid, signal.SIGCONT)  # a command may have stopped it
                passed = [descriptor for descriptor in descriptors if descriptor >= 0]
                socket.send_fds(spare, [message], passed)
            except OSError:
                return 0
        return self._spare_pid

    def prepare(self) -> None:
        """Fork a process that waits, unless there is one. Raise `OSError`."""
        if self._spare is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            try:
                pid = syscalls.fork_without_hooks()
                if pid == 0:
                    _await_start(theirs.fileno(), self._home)
            except BaseException:
                ours.close()
                raise
        self._spare_pid, self._spare = pid, ours

    def pids(self) -> set[int]:
        """Return the process ID of the process that waits, if there is one."""
        return set() if self._spare is None else {self._spare_pid}

    def on_exit(self, pid: int) -> bool:
        """Handle the end of process `pid`. Return False if it did not wait for a command."""
        if is_spare := pid in self.pids():
            self.close()
        return is_spare

    def close(self) -> None:
        """Let the process that waits end."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None


def _await_start(link_fd: int, home: Home) -> NoReturn:
    """In a fork: do what does not depend on the command, and wait for one."""
    try:
        _prepare(home)
        link = socket.socket(fileno=keep_only(link_fd))
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # until it executes a program
        message, descriptors, _, _ = socket.recv_fds(link, _MAX_MESSAGE, _MAX_DESCRIPTORS)
        if message:
            with _reporting_failure(descriptors[0]) as report:
                *missing, out, err = descriptors[1:]
                start = CommandStart(*marshal.loads(message))
                _become(start, [descriptors[0], *(missing or [-1]), out, err], report)
    finally:
        os._exit(1)


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


@contextlib.contextmanager
def _reporting_failure(descriptor: int) -> Generator[list[bytes]]:
    """Report an error to `read_failure`, and exit. The last value that is yielded is the step."""
    steps, number = [CONFINE], errno.EINVAL
    try:
        yield steps
    except OSError as error:
        number = error.errno or errno.EINVAL
    except BaseException:
        pass
    os.write(descriptor, _REPORT.pack(steps[-1], number))
    os._exit(127)


def _prepare(home: Home) -> None:
    """In a fork: become a process as a command is, but for its program."""
    lead_session()
    for number in range(1, signal.NSIG):
        if _signal.getsignal(number) == _SIG_IGN:
            _signal.signal(number, _SIG_DFL)
    home.confine()


def _become(start: CommandStart, descriptors: Sequence[int], steps: list[bytes]) -> NoReturn:
    """Execute the program. Raise `OSError`."""
    set_standard_streams(descriptors[1:])
    # Let no other one reach the program. Some libraries, and `recv_fds`, make inheritable ones.
    _for_range(_FIRST_DESCRIPTOR, _CLOSE_ON_EXEC)
    steps.append(ENTER_FOLDER)
    os.chdir(start.folder)
    steps.append(EXECUTE)
    _execute(start.argv, start.environment)


def lead_session() -> None:
    """In a fork of the first process: lead a session of processes, with usual signals."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()


def set_standard_streams(descriptors: Sequence[int]) -> None:
    """Let `descriptors` be the standard streams. -1 is that of `/dev/null`."""
    # A new open file: what a process does to a shared one, such as a lock, outlives the process.
    null = os.open("/dev/null", os.O_RDWR)
    for target, source in enumerate(descriptors):
        os.dup2(null if source < 0 else source, target)
    os.close(null)


def keep_only(descriptor: int) -> int:
    """Close all descriptors but the standard streams and `descriptor`. Return its new number."""
    os.dup2(descriptor, _FIRST_DESCRIPTOR, inheritable=False)
    _for_range(_FIRST_DESCRIPTOR + 1, 0)
    return _FIRST_DESCRIPTOR


def _for_range(first: int, flags: int) -> None:
    """Close all descriptors from `first` on, or close them on exec."""
    try:
        syscalls.syscall(syscalls.CLOSE_RANGE, first, _LAST_DESCRIPTOR, flags, name="close_range")
    except OSError:  # a kernel without it
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if descriptor >= first and flags:
                    os.set_inheritable(descriptor, False)
                elif descriptor >= first:
                    os.close(descriptor)


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
