"""Unpack an image into the cache of the user, once for all boxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final

from ...aio.shielded import run_in_thread, wait_shielded
from ...environments.uv import user_cache_dir
from ...errors import BackendError, ImageUnusable
from ...runtime.linux.safe_folder import SafeFolder, remove_tree
from ...runtime.linux.syscalls import sync_filesystem
from .byte_stream import (
    CHUNK_BYTES,
    HEAD_BYTES,
    Blob,
    Budget,
    ByteStream,
    HashingReader,
    decompressed,
)
from .image_files import ArchiveFiles, FolderFiles, ImageSource
from .layers import unpack_layer
from .manifest import Layer, RootImage, find_image
from .root_file_system import RootFileSystem, RootSource
from .tree import Tree, split

if sys.platform != "win32":
    import fcntl

MAX_BYTES: Final = 16 << 30
MAX_FILES: Final = 1_000_000
_FORMAT = "1"  # of what is in the cache
_LOCK_POLL_SECONDS = 0.05


def open_root(
    source: str | os.PathLike[str],
    *,
    image: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
    stop: threading.Event | None = None,
) -> RootFileSystem:
    """Return the root file system of a folder or an image.

    A folder is used as it is. An image is unpacked into the user's cache, unless it is there: an
    OCI image layout, as a folder or an archive, or an archive of `docker save`. Owners, setuid
    bits, extended attributes, devices and pipes are left out: all files belong to the box's user.

    image       the name of the image, if `source` has several
    max_bytes   how many bytes an image may have, and `max_files` how many files
    stop        ends the work when it is set, with `InterruptedError`

    Raise `ImageUnusable` for an image that is damaged, too large, not for this machine, or not one
    at all, and `BackendError` if the cache cannot be written to.
    """
    path = os.path.abspath(source)
    try:
        if os.path.isdir(path) and not os.path.lexists(f"{path}/oci-layout"):
            if os.path.realpath(path) == "/":
                raise ImageUnusable("it would show the whole machine")
            return RootFileSystem(path)
        unpacking = _Unpacking(path, max_bytes, max_files, stop or threading.Event())
        return unpacking.run(image)
    except ImageUnusable as error:
        raise ImageUnusable(f"{path} cannot be used as a root file system: {error}.") from error


async def load_root(source: RootSource) -> RootFileSystem:
    """Return the root file system of `source` as `open_root` does, in a thread."""
    if isinstance(source, RootFileSystem):
        return source
    stop = threading.Event()
    opening = asyncio.ensure_future(run_in_thread(open_root, source, stop=stop))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        stop.set()
        await wait_shielded(asyncio.wait([opening]))
        opening.exception()  # so that asyncio does not log it as never retrieved
        raise


class _Unpacking:
    """The use of one image."""

    def __init__(self, path: str, max_bytes: int, max_files: int, stop: threading.Event) -> None:
        self._path, self._stop, self._cache = path, stop, user_cache_dir("roots")
        self._limits = max_bytes, max_files

    def run(self, name: str | None) -> RootFileSystem:
        """Return the root file system of the image, after unpacking it if that is necessary."""
        with self._translate_errors():
            self._cache.mkdir(0o700, parents=True, exist_ok=True)
        with self._open_files() as files:
            image = find_image(files, name)
            folder = self._cache / f"{_FORMAT}-{image.digest.replace(':', '-')}"
            if not folder.is_dir():
                with self._translate_errors(), self._lock(folder):
                    if not folder.is_dir():
                        self._unpack(image, files, folder)
        settings = image.settings
        return RootFileSystem(
            str(folder),
            tuple(filter(_is_variable, settings.environment or ())),
            f"/{'/'.join(names)}" if (names := split(settings.work_dir or "")) else "",
        )

    def _new_budget(self) -> Budget:
        return Budget(*self._limits, self._stop)

    @contextlib.contextmanager
    def _open_files(self) -> Generator[ImageSource]:
        if os.path.isdir(self._path):
            yield FolderFiles(self._path)
            return
        above, name = os.path.split(os.path.realpath(self._path))
        try:
            with SafeFolder.at(above) as folder:
                file = folder.read_file(name)
        except OSError as error:
            raise ImageUnusable(f"{error.strerror}") from error
        with file, self._decompressed(file) as archive:
            yield ArchiveFiles(archive, self._new_budget())

    @contextlib.contextmanager
    def _decompressed(self, file: BinaryIO) -> Generator[BinaryIO]:
        """Yield the file, or a temporary one with its data if that is compressed."""
        blob = Blob(file, 0, os.fstat(file.fileno()).st_size)
        source = decompressed(blob, blob.peek(HEAD_BYTES))
        if source is blob:
            file.seek(0)
            yield file
            return
        stream = ByteStream(source, self._new_budget())
        with self._translate_errors(), tempfile.TemporaryFile(dir=self._cache) as copy:
            while data := stream.read(CHUNK_BYTES):
                copy.write(data)
            copy.seek(0)
            yield copy

    def _unpack(self, image: RootImage, files: ImageSource, folder: Path) -> None:
        """Unpack an image beside `folder`, and give it that name when all is there."""
        budget, partial = self._new_budget(), folder.with_name(f"{folder.name}.partial")
        remove_tree(str(partial))  # of a process that was killed
        try:
            with (
                SafeFolder.at(self._cache) as cache,
                cache.new_folder(partial.name) as root,
                contextlib.closing(Tree(root, budget)) as tree,
            ):
                for layer in image.layers:
                    _unpack_layer(layer, files, tree, budget)
                tree.make_path(split(image.settings.work_dir or ""))
                tree.set_modes()
                sync_filesystem(root.descriptor)  # or a power failure leaves empty files in it
            partial.rename(folder)
        except BaseException:
            remove_tree(str(partial))
            raise

    @contextlib.contextmanager
    def _lock(self, folder: Path) -> Generator[None]:
        """Hold the lock of an image, across all processes."""
        with open(folder.with_name(f"{folder.name}.lock"), "ab") as lock:
            while not _try_lock(lock):
                if self._stop.wait(_LOCK_POLL_SECONDS):
                    raise InterruptedError("nobody waits for the image any more")
            yield

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except InterruptedError:
            raise
        except OSError as error:
            raise BackendError(
                f"Images cannot be stored in {self._cache}: {error.strerror or error}. "
                "Set XDG_CACHE_HOME to a folder that you can write to."
            ) from error


def _unpack_layer(layer: Layer, files: ImageSource, tree: Tree, budget: Budget) -> None:
    try:
        with files.open(layer.file) as blob:
            stored = HashingReader(blob, layer.digest or layer.content_digest)
            source = decompressed(stored, blob.peek(HEAD_BYTES))
            content = HashingReader(source, layer.content_digest)
            stream = ByteStream(content, budget)
            unpack_layer(stream, tree, budget)
            while stream.read(CHUNK_BYTES):
                pass  # what follows the end of an archive
            content.check()
            if layer.digest is not None:
                stored.check()
    except ImageUnusable as error:
        raise ImageUnusable(f"layer {layer.file}: {error}") from error


def _is_variable(text: str) -> bool:
    """Return False for what no program can be given."""
    return bool(text.partition("=")[0]) and "\0" not in text


def _try_lock(lock: BinaryIO) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
