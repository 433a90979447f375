"""What is asked of a box: its commands and its files. See `cellblock.box` for the meaning.

A box is a session with more than an interpreter. The first process of its cell carries these orders
out. They arrive in frames of the kind `BOX_REQUEST`, from the caller by way of the server. Data for
a command or a file follows in `BOX_DATA`; an empty one ends it. `BOX_TAKEN` answers each piece, so
that few are under way at once. The last reply is a `BoxAnswer`. `CANCEL` kills a command, and ends
the work on a file.
"""

from __future__ import annotations

import errno
import os
from typing import Final, NamedTuple, get_args

from . import protocol
from .packets import fields_of


class RunCommand(NamedTuple):
    """Run a program, as the leader of a new process group and session.

    argv           not empty. Text that is not UTF-8 has surrogate escapes
    cwd            absolute, or relative to the work folder
    env            variables that are added to those of the box
    reads_input    data follows, until an empty piece; otherwise its input is `/dev/null`
    seconds        its time limit, at which its session of processes is killed
    user           "" for the user of the box, a name, or a user ID
    is_merged      what it writes to stderr goes to stdout
    output_bytes   how many bytes of each stream are sent. It goes on beyond that
    """

    session: int
    argv: tuple[str, ...]
    cwd: str = ""
    env: tuple[tuple[str, str], ...] = ()
    reads_input: bool = False
    seconds: float | None = None
    user: str = ""
    is_merged: bool = False
    output_bytes: int | None = None


class SignalCommand(NamedTuple):
    """Send a signal to the process group of the command that request `command` runs."""

    session: int
    command: int
    signal: int


class HoldOutput(NamedTuple):
    """Stop reading the output of a command, or go on. A full pipe makes it wait.

    Also of a file that is read.
    """

    session: int
    command: int
    is_held: bool


class ListCommands(NamedTuple):
    """List the processes of commands that are running, and those that they have left.

    `others`: other processes, as the box sees them. The server adds them.
    """

    session: int
    others: tuple[int, ...] = ()


class EndCommands(NamedTuple):
    """Kill all processes of commands, and those that they have left. `others`: not these."""

    session: int
    others: tuple[int, ...] = ()


# Files. `path` is absolute, or relative to the work folder, and `user` as in `RunCommand`.


class ReadFile(NamedTuple):
    """Send the bytes of a file, in frames of the kind `VALUE_CHUNK`. EFBIG: it has more."""

    session: int
    path: str
    user: str = ""
    limit_bytes: int | None = None


class WriteFile(NamedTuple):
    """Replace or create a file with the data that follows, and the folders above it.

    `mode`: its permissions, None for those that it has, or by the umask.
    """

    session: int
    path: str
    user: str = ""
    mode: int | None = None


class ListFolder(NamedTuple):
    """Describe the entries of a folder, sorted by name.

    If they are many, frames of the kind `VALUE_CHUNK` have the packet of the answer.
    """

    session: int
    path: str
    user: str = ""


class StatPath(NamedTuple):
    """Describe what `path` names, after links, or the link itself."""

    session: int
    path: str
    user: str = ""
    follows_links: bool = True


class MakeFolder(NamedTuple):
    """Create a folder and those above it. It may exist."""

    session: int
    path: str
    user: str = ""


class RemovePath(NamedTuple):
    """Remove a file, a link or a folder with its contents, but not the work folder.

    ENOTSUP: it is the work folder, or one above it. `may_miss`: it need not exist.
    """

    session: int
    path: str
    user: str = ""
    may_miss: bool = False


class ResolvePath(NamedTuple):
    """Return the path without links; what does not exist stays as it is."""

    session: int
    path: str
    user: str = ""


BoxOrder = (
    RunCommand
    | SignalCommand
    | HoldOutput
    | ListCommands
    | EndCommands
    | ReadFile
    | WriteFile
    | ListFolder
    | StatPath
    | MakeFolder
    | RemovePath
    | ResolvePath
)
FileOrder = ReadFile | WriteFile | ListFolder | StatPath | MakeFolder | RemovePath | ResolvePath
BOX_ORDERS: Final = get_args(BoxOrder)
FILE_ORDERS: Final = get_args(FileOrder)


# to the caller


class CommandStarted(NamedTuple):
    """`BOX_STARTED`: the first reply to `RunCommand`, if the program was started."""

    pid: int

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.BOX_STARTED, run, fields_of(self))


class FileEntry(NamedTuple):
    """A file. `kind`: "file", "folder", "link" or "other", after links if they were followed.

    `size` is in bytes, `mode` the permissions, `modified` seconds since 1970.
    """

    name: str
    path: str
    kind: str
    is_link: bool
    size: int
    mode: int
    modified: float


class CommandProcess(NamedTuple):
    """A process of a command: its process ID in the box and its command line."""

    pid: int
    text: str


class BoxAnswer(NamedTuple):
    """`BOX_REPLY`: the last reply to an order. None: it does not say.

    exit            of a command: its exit code, 128+N if signal N has ended it. 127: no such
                    program. 124: its time limit
    is_timed_out    its time limit has ended it, and
    is_truncated    it wrote more than `output_bytes`
    limit           the limit of the box that ended it. The server adds it
    wall, cpu       seconds
    peak            bytes of memory of its largest process; 0: less than that of what starts it
    errno, error    what failed, and the text that says so. EPERM without a `path`: the user
                    cannot be had
    entries         of a folder, or the one that was asked for
    path            without links; or what failed: a file, the current folder, or a program
    processes       of commands
    """

    exit: int | None = None
    is_timed_out: bool | None = None
    is_truncated: bool | None = None
    limit: str | None = None
    wall: float | None = None
    cpu: float | None = None
    peak: int | None = None
    errno: int | None = None
    error: str | None = None
    entries: tuple[FileEntry, ...] | None = None
    path: str | None = None
    processes: tuple[CommandProcess, ...] | None = None

    @classmethod
    def from_error(cls, error: Exception, path: str | None = None) -> BoxAnswer:
        """Return the answer that `error` has prevented what was asked for, of `path`."""
        number, text = errno.EINVAL, str(error)
        if isinstance(error, MemoryError):
            number, text = errno.ENOMEM, os.strerror(errno.ENOMEM)
        elif isinstance(error, OSError):
            number = error.errno or errno.EIO
            text = error.strerror or text
        if path is not None:
            text = f"{text}: {path!r}"
        return cls(errno=number, error=text, path=path)

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.BOX_REPLY, run, fields_of(self))
