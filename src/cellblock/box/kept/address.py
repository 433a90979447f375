"""BoxAddress: where a kept box is found, which only processes of the same user can use.

The sockets are in one folder for each user, as those of tmux are. It is not below
`XDG_RUNTIME_DIR`, which is removed when the user logs out. Others cannot enter the folder, and both
ends ask the kernel which user is at the other one: `SO_PEERCRED` in unix(7).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import stat
import struct
import sys
from typing import NamedTuple

from ... import __version__
from ...errors import BackendError
from .orders import no_such_box

_PARENT = "/tmp"
_CREDENTIALS = struct.Struct("3i")  # of the process ID, the user and the group
_SOCKET = r"boxes-[0-9a-f]{16}\.sock"
_REF = re.compile(rf"cellblock-([^:]+):(/.+/{_SOCKET}):(box-[0-9a-f]{{16}})")


def new_box_id() -> str:
    """Return a name that no other box has."""
    return f"box-{secrets.token_hex(8)}"


class BoxAddress(NamedTuple):
    """A box, and the socket of the process that has it."""

    socket_path: str
    box: str

    @classmethod
    def create(cls, box: str) -> BoxAddress:
        """Return the address of a new process. Raise `BackendError`."""
        remove_abandoned_sockets()
        return cls(f"{_own_folder()}/boxes-{secrets.token_hex(8)}.sock", box)

    @classmethod
    def from_ref(cls, ref: object) -> BoxAddress:
        """Return the address in what `ref` returned. Raise `ValueError`, `BackendError`."""
        if not isinstance(ref, str) or not (match := _REF.fullmatch(ref)):
            raise ValueError(f"Pass what the ref() of a kept box returned, not {ref!r:.100}.")
        version, path, box = match.groups()
        if version != __version__:
            raise BackendError(
                f"The box {box} was made by Cellblock {version}, and this is {__version__}. "
                "Attach to it with that version, or create a new one."
            )
        return cls(path, box)

    @property
    def ref(self) -> str:
        """The text that names the box to other processes."""
        return f"cellblock-{__version__}:{self.socket_path}:{self.box}"

    def listen(self) -> tuple[socket.socket, socket.socket]:
        """Return a socket that listens at the address, and the first stream to it."""
        listener, stream = _new_socket(), _new_socket()
        try:
            # It gets its name once it listens, so one that refuses connections has no process.
            unfinished = f"{self.socket_path}.new"
            listener.bind(unfinished)
            os.chmod(unfinished, 0o600)
            listener.listen()
            stream.connect(unfinished)
            os.rename(unfinished, self.socket_path)
        except OSError as error:
            listener.close()
            stream.close()
            raise BackendError(
                f"{self.socket_path} cannot be created: {error.strerror}."
            ) from error
        return listener, stream

    def connect(self) -> socket.socket:
        """Return a stream to the process. Raise `BoxGone`, or `BackendError` for a false one."""
        stream = _new_socket()
        try:
            _check_folder(os.path.dirname(self.socket_path), "Attach as the user of the box.")
            stream.connect(self.socket_path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            stream.close()
            raise no_such_box(self.box) from error
        except OSError as error:
            stream.close()
            raise BackendError(
                f"{self.socket_path}, the socket of a box, cannot be used: {error}."
            ) from error
        except BaseException:
            stream.close()
            raise
        if peer_of(stream)[1] != _user():
            stream.close()
            raise BackendError(f"{self.socket_path} is the socket of another user.")
        return stream


def _new_socket() -> socket.socket:
    assert sys.platform != "win32"
    return socket.socket(socket.AF_UNIX)


def _user() -> int:
    assert sys.platform != "win32"
    return os.geteuid()


def _own_folder() -> str:
    """Return a folder for this user's sockets, which is created if it does not exist.

    It has another name if another user has made one of the usual name: the path is in the `ref`.
    """
    if found := _own_folders():
        return found[0]
    path = usual = f"{_PARENT}/{_usual_name()}"
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        if os.lstat(path).st_uid == _user():
            _check_folder(path, "Remove it.")
            return path
        path = f"{usual}-{secrets.token_hex(8)}"


def _own_folders() -> list[str]:
    """Return the folders of this user's sockets. Raise `BackendError`, see `_check_folder`."""
    name, found = re.compile(rf"{_usual_name()}(-[0-9a-f]{{16}})?"), list[str]()
    with os.scandir(_PARENT) as entries:
        for entry in entries:
            if name.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                    if entry.stat(follow_symlinks=False).st_uid == _user():
                        _check_folder(entry.path, "Remove it.")
                        found.append(entry.path)
    return sorted(found)


def _usual_name() -> str:
    return f"cellblock-{_user()}"


def _check_folder(path: str, advice: str) -> None:
    """Raise `BackendError` if others can enter the folder, `FileNotFoundError` if it is missing."""
    status = os.lstat(path)
    is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not is_private or status.st_uid != _user():
        raise BackendError(
            f"{path} must be a folder that only you can enter, with mode 700. It belongs to user "
            f"{status.st_uid} and has mode {stat.S_IMODE(status.st_mode):o}. {advice}"
        )


def peer_of(stream: socket.socket) -> tuple[int, int]:
    """Return the process and the user that have made the other end of `stream`."""
    assert sys.platform == "linux"
    data = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(data)
    return pid, user


def is_own_process(stream: socket.socket) -> bool:
    """Return True if a process of this user, outside of sandboxes, is at the other end.

    A sandbox that was given the folder of the sockets has the same user: it is known by its user
    namespace. See user_namespaces(7).
    """
    pid, user = peer_of(stream)
    try:
        theirs, own = os.stat(f"/proc/{pid}/ns/user"), os.stat("/proc/self/ns/user")
    except OSError:  # it has ended, or is one of another user
        return False
    return user == _user() and os.path.samestat(theirs, own)


def remove_abandoned_sockets() -> list[str]:
    """Remove the sockets of processes that were killed, and return their paths."""
    removed = list[str]()
    for folder in _own_folders():
        for name in sorted(os.listdir(folder)):
            path = f"{folder}/{name}"
            if re.fullmatch(_SOCKET, name) and not _is_served(path):
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    os.unlink(path)
                    removed.append(path)
    return removed


def _is_served(path: str) -> bool:
    with _new_socket() as stream:
        stream.setblocking(False)
        try:
            stream.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:  # it is busy, or removed
            pass
    return True
