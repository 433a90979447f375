"""The work folder from outside: write the blocks' files into it, and see what the blocks made.

Code that nobody read owns everything below the folder. So nothing is opened through a name that it could have turned into a
link: each step goes from one folder handle to the next.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Container, Generator, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...errors import WorkspaceError
from ...runtime.linux import files

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CLOCK_OF_FILES = 5  # CLOCK_REALTIME_COARSE, see clock_gettime(2)
_MOST_FILES = 10_000  # looked at for changes after each block
_MOST_STEPS = 100_000  # of such a look: one for each name, also of what is not shown
_STEPS_INTO_FOLDER = 20  # which has to be opened
_FEW_FILES, _FEW_STEPS = 200, 2_000  # take no time
_RECENT = 20  # files of blocks that are over, in which a later block may change something that is to be seen
_TEMPORARY = re.compile(r"tmp_code_[0-9a-f]{32}\.\w+")
_DEEPEST = 16
_SETTLING = 0.02  # seconds in which a coarse clock has moved on: a change that is still to come has another time
_NOT_SHOWN = ("__pycache__", "node_modules")
_MOST_LINKS, _LONGEST = (
    40,
    4096,
)  # followed for one name, and letters of it and them all: the kernel has the same limits
_END_OF_LINK = "/"  # which no part of a path can be


T = TypeVar("T")


class OutsideWorkspace(Exception):
    """A file name does not lie in the work folder."""


class Seen(NamedTuple):
    """What tells one state of a file from the next."""

    inode: int
    changed: int
    size: int


class Workspace:
    """The folder `path`, which must exist. `shown` is the name under which results speak of it."""

    def __init__(self, path: Path, shown: str | None = None) -> None:
        self.path = path.resolve()
        self.shown = shown or str(path)
        self._name = str(self.path)  # which a path makes anew each time
        self._within, self._shown_within = (
            os.path.join(self._name, ""),
            os.path.join(self.shown, ""),
        )
        self._identity = self._look()
        self._known: dict[str, Seen] = {}
        # The files of blocks that run now: not made by any of them, and not worth a look when there are many.
        self._running: set[str] = set()
        self._recent: dict[
            str, Seen | None
        ] = {}  # as those of the last blocks were left, in the order in which they ended
        self._guard = threading.Lock()
        self._empty = (
            (0, 0),
            0.0,
        )  # the folder's state when it was first seen without any file, and since when
        self._settled = 0, 0  # such a state that nothing can have come to since
        self.is_small = True  # as far as is known

    def _look(self) -> tuple[int, int]:
        try:
            status = os.stat(self._name)
        except OSError as error:
            raise WorkspaceError(
                f"The work folder {self.shown} is not there ({error.strerror}): make it again and call restart()."
            ) from error
        return status.st_dev, status.st_ino

    def check(self) -> None:
        """Raise `WorkspaceError` when the folder is gone, or is not the one that it was."""
        if self._look() != self._identity:
            raise WorkspaceError(
                f"The work folder {self.shown} was replaced by another: call restart() to use that."
            )

    def whole_name(self, name: str) -> str:
        """Give the whole path of what lies below the folder as `name`."""
        return f"{self._within}{name}"

    def shown_name(self, name: str) -> str:
        """Give the path under which results speak of it."""
        return f"{self._shown_within}{name}"

    def now(self) -> int:
        """Give the moment by the clock that marks changes of files, for `changed`."""
        return time.clock_gettime_ns(_CLOCK_OF_FILES)

    def place(self, name: str) -> str:
        """Give the path below the folder that `name` means. Raises `OutsideWorkspace`."""
        try:
            name.encode()
            real = _meant(self._within[:-1], name)
        except ValueError as error:  # NUL, lone surrogates
            raise OutsideWorkspace(name) from error
        if not real.startswith(self._within) or os.path.isdir(real):
            raise OutsideWorkspace(name)
        return real[len(self._within) :]

    def write(self, name: str, text: str) -> int:
        """Write the file `name`, a path below the folder, in one step; give its time of change as the disk has it.

        Raises `WorkspaceError`, and `OutsideWorkspace` when the code turned part of the way into a link meanwhile.
        """
        return self._write(_replace, name, text.encode(errors="replace"))

    def write_bytes(self, name: str, data: bytes) -> int:
        """Write the file `name` as `write` does."""
        return self._write(_replace, name, data)

    def read(self, name: str) -> tuple[bytes, int]:
        """Give the content of the file `name`, and its permissions. Raises `WorkspaceError`."""
        try:
            with self._folder_of(name) as (folder, last):
                descriptor = os.open(
                    last, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
                )
                with open(descriptor, "rb") as file:
                    return file.read(), os.fstat(descriptor).st_mode & 0o777
        except OSError as error:
            raise WorkspaceError(
                f"{name} cannot be read in the work folder {self.shown}: {error.strerror}."
            ) from error

    def _write(self, write: Callable[[str, bytes, int], int], name: str, data: bytes) -> int:
        try:
            if os.sep not in name:
                return self._at_top(lambda top: write(name, data, top))
            with self._folder_of(name) as (folder, last):
                return write(last, data, folder)
        except NotADirectoryError as error:
            raise OutsideWorkspace(name) from error
        except OSError as error:
            raise WorkspaceError(
                f"{name} cannot be written in the work folder {self.shown}: {error.strerror}."
            ) from error

    def _at_top(self, do: Callable[[int], T]) -> T:
        """Do something in the work folder itself: what each block does twice is done without the ado of `_folder_of`."""
        top = os.open(self._name, _FOLDER)
        try:
            return do(top)
        finally:
            os.close(top)

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Generator[tuple[int, str]]:
        *parents, last = name.split(
            os.sep
        )  # not a Path: that keeps every name of a temporary file for ever
        folder = os.open(self._name, _FOLDER)
        try:
            for parent in parents:
                is_new = _make_folder(parent, folder)
                inner = os.open(parent, _FOLDER, dir_fd=folder)
                if is_new and _holds_only((), inner):  # else code has put another in its place
                    files.give(inner, folder)
                os.close(folder)
                folder = inner
            yield folder, last
        finally:
            os.close(folder)

    def temporary_name(self, suffix: str) -> str:
        """Give a new name for each run, not for each text: two runs of the same text must not share a file."""
        return f"tmp_code_{os.urandom(16).hex()}.{suffix}"

    def write_temporary(self, name: str, text: str) -> int:
        """Write the file of a block that has no name of its own, but one that is new; `remove` or `keep` ends that."""
        changed = self._write(files.write_new, name, text.encode(errors="replace"))
        self._running.add(name)
        return changed

    def expect(self, name: str) -> None:
        """Somebody else will write the file of a block, under a name that `temporary_name` gave; `remove` ends that."""
        self._running.add(name)

    def keep(self, name: str) -> None:
        """Let the file of a block that is over be one like any other, for as long as it is one of the last."""
        self._running.discard(name)
        with self._guard:
            self._recent[name] = self._seen(name)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]

    def _seen(self, name: str) -> Seen | None:
        with contextlib.suppress(OSError), self._folder_of(name) as (folder, last):
            return _seen(os.stat(last, dir_fd=folder, follow_symlinks=False))
        return None

    def remove(self, name: str) -> None:
        """Remove the file `name`, if it is still there."""
        self._running.discard(name)
        try:
            if os.sep not in name:
                self._at_top(lambda top: os.unlink(name, dir_fd=top))
                return
            with self._folder_of(name) as (folder, last):
                os.unlink(last, dir_fd=folder)
        except OSError:
            return  # the code has removed it, or the whole folder

    def changed(self, since: int | None, *, besides: str) -> list[tuple[str, int]]:
        """List path and size of the files made or changed since the moment `since`, in order of their names.

        `since` is what `write` gave; `None`: the block never began. Hidden files are left out, and so are those of blocks
        long past, which would make each block dearer than the one before. Of a very large folder only a part is looked at,
        however much of it is hidden.
        """
        if since is None:
            return []
        if self.is_small and self._holds_only_blocks():
            self._known = {}
            return []
        look = _Look(self._is_idle)
        files = list(self._files(look))
        self.is_small = len(files) <= _FEW_FILES and look.steps <= _FEW_STEPS
        recent = {path: seen for path, seen in files if seen.changed >= since}
        # The clock of the disk is coarse: this block may have begun in the tick in which the one before was written or ended.
        made = [
            (_readable(path), seen.size)
            for path, seen in recent.items()
            if path != besides and seen not in (self._known.get(path), self._recent.get(path))
        ]
        self._known = recent
        return sorted(made)

    def _holds_only_blocks(self) -> bool:
        """Tell whether there is nothing but the files of blocks that run, of which there may be many at a time."""
        try:
            # By its own name, which takes half the calls: what is elsewhere could only be counted.
            return _holds_only(self._running, self._name) if self._running else self._is_empty()
        except OSError:
            return False

    def _is_empty(self) -> bool:
        """Tell whether nothing is in the folder; it is not listed for each block of a session that makes no files."""
        status = os.stat(self._name)
        state = status.st_ino, status.st_ctime_ns  # which code cannot set back
        if state == self._settled:
            return True
        if not _holds_only((), self._name):
            return False
        now = time.monotonic()
        if self._empty[0] != state:
            self._empty = state, now
        elif now > self._empty[1] + _SETTLING:
            self._settled = state
        return True

    def files(self) -> dict[str, Seen]:
        """Give all files that are not hidden, those of running blocks included; of a very large folder only a part."""
        return dict(self._files(_Look()))

    def _is_idle(self, name: str) -> bool:
        """Tell whether a file at the top is that of a block that runs, or of one that ended long ago."""
        return name.startswith("tmp_code_") and (
            name in self._running
            or (name not in self._recent and _TEMPORARY.fullmatch(name) is not None)
        )

    def _files(self, look: _Look) -> Iterator[tuple[str, Seen]]:
        try:
            top = os.open(self._name, _FOLDER)
        except OSError:
            return
        try:
            yield from itertools.islice(look.files(top), _MOST_FILES)
        finally:
            os.close(top)


def _meant(top: str, name: str) -> str:
    """Give the path that `name` means in the folder `top`, as `os.path.realpath` does: also where nothing is, or links turn
    in a circle. That follows links without end, though, and code makes them. Raises `OutsideWorkspace`.
    """
    path, rest, letters = "" if name.startswith("/") else top, name.split("/")[::-1], len(name)
    links, following = 0, list[str]()
    while rest and links <= _MOST_LINKS and letters <= _LONGEST:
        part = rest.pop()
        if part == _END_OF_LINK:
            following.pop()
        elif part == "..":
            path = path.rpartition("/")[0]
        elif part not in ("", "."):
            step = f"{path}/{part}"
            target = None if step in following else _target(step)
            if target is None:
                path = step
                continue
            path = "" if target.startswith("/") else path
            rest += [_END_OF_LINK, *target.split("/")[::-1]]
            links, letters = links + 1, letters + len(target)
            following.append(step)
    if rest:
        raise OutsideWorkspace(name)
    return path


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing at all
        return None


def _make_folder(name: str, above: int) -> bool:
    """Make a folder, and tell whether it was not there."""
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _seen(status: os.stat_result) -> Seen:
    return Seen(status.st_ino, status.st_ctime_ns, status.st_size)


def _holds_only(names: Container[str], folder: str | int) -> bool:
    """Tell whether nothing but `names` is in a folder; code may have put millions there, of which one is enough."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in names:
                return False
    return True


class _Look:
    """A look through a folder, which ends after so many steps, whatever code has put there.

    What `is_idle` at its top is left out.
    """

    def __init__(self, is_idle: Callable[[str], bool] | None = None) -> None:
        self._is_idle = is_idle
        self.steps = 0

    def files(
        self, folder: int, above: str = "", depth: int = _DEEPEST
    ) -> Iterator[tuple[str, Seen]]:
        """Give what lies in the open folder, and, by handles as well, in those below it."""
        is_idle = None if above else self._is_idle
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if self.steps >= _MOST_STEPS:
                        return
                    self.steps += 1
                    name = entry.name
                    if (
                        name.startswith(".")
                        or name in _NOT_SHOWN
                        or (is_idle is not None and is_idle(name))
                    ):
                        continue
                    path = os.path.join(above, name)
                    if entry.is_file(follow_symlinks=False):
                        yield path, _seen(entry.stat(follow_symlinks=False))
                    elif depth and entry.is_dir(follow_symlinks=False):
                        yield from self._below(name, folder, path, depth - 1)
        except OSError:
            return  # what vanishes meanwhile is not there

    def _below(self, name: str, folder: int, path: str, depth: int) -> Iterator[tuple[str, Seen]]:
        self.steps += _STEPS_INTO_FOLDER
        with contextlib.suppress(OSError):
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from self.files(inner, path, depth)
            finally:
                os.close(inner)


def _readable(path: str) -> str:
    """Give a file name as text that can be printed; names need not be UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def _replace(name: str, data: bytes, folder: int) -> int:
    """Write a file and move it into place, so that nobody, nor a full disk, ever sees half of it."""
    temporary = f".cellblock-{secrets.token_hex(8)}"
    files.write_new(temporary, data, folder)
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ctime_ns
    except BaseException:
        files.remove(temporary, folder)
        raise
