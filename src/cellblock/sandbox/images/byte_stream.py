"""Read the bytes of an image, which may be hostile: counted, decompressed, digests checked."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import importlib
import threading
import zlib
from typing import Any, BinaryIO, Final, Protocol, cast

from ...errors import ImageUnusable

CHUNK_BYTES: Final = 1 << 20
HEAD_BYTES: Final = 4  # of data, which tell how it is compressed
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    """What returns the next bytes: as many as requested, unless it ends."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        ...


class Budget:
    """How much an image may have. `stop` is set when nobody waits for it any more."""

    def __init__(self, max_bytes: int, max_files: int, stop: threading.Event) -> None:
        self._max_bytes, self._max_files, self._stop = max_bytes, max_files, stop
        self._bytes = self._files = 0

    def count_bytes(self, count: int) -> None:
        """Raise `ImageUnusable` if these are too many."""
        self._bytes += count
        if self._bytes > self._max_bytes:
            raise ImageUnusable(f"it has more than max_bytes={self._max_bytes:,} bytes")
        self.check_stop()

    def check_stop(self) -> None:
        """Raise `InterruptedError` if nobody waits any more."""
        if self._stop.is_set():
            raise InterruptedError("nobody waits for the image any more")

    def count_file(self) -> None:
        """Raise `ImageUnusable` if this is one too many."""
        self._files += 1
        if self._files > self._max_files:
            raise ImageUnusable(f"it has more than max_files={self._max_files:,} files")


class Blob:
    """A part of a file that nothing else reads meanwhile."""

    def __init__(self, file: BinaryIO, position: int, size: int) -> None:
        self._file, self._position, self._end = file, position, position + size

    def peek(self, size: int) -> bytes:
        """Return the next bytes, which stay the next ones."""
        self._file.seek(self._position)
        return self._file.read(min(size, self._end - self._position))

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        data = self.peek(size)
        self._position += len(data)
        return data


class HashingReader:
    """Read from `source`, and compute the digest of that."""

    def __init__(self, source: Readable, digest: str) -> None:
        self._source, self._digest = source, digest
        self._hash = hashlib.new(digest.partition(":")[0])

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        data = self._source.read(size)
        self._hash.update(data)
        return data

    def check(self) -> None:
        """Read what is left. Raise `ImageUnusable` if all that was read has another digest."""
        while self.read(CHUNK_BYTES):
            pass
        if self._hash.hexdigest() != self._digest.partition(":")[2]:
            raise ImageUnusable(f"its content does not have the digest {self._digest}")


class ByteStream:
    """The decompressed bytes of a part of an image, from front to back."""

    def __init__(self, source: Readable, budget: Budget) -> None:
        self._source, self._budget, self.position = source, budget, 0

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end. Raise `ImageUnusable` for damaged ones."""
        try:
            data = self._source.read(size)
        except (EOFError, OSError, zlib.error, _zstandard_error()) as error:
            raise ImageUnusable(f"its data is damaged or incomplete: {error}") from error
        self.position += len(data)
        self._budget.count_bytes(len(data))
        return data

    def read_exactly(self, size: int) -> bytes:
        """Return the next bytes. Raise `ImageUnusable` if there are fewer."""
        if len(data := self.read(size)) < size:
            raise ImageUnusable("its data is incomplete")
        return data

    def skip(self, size: int) -> None:
        """Pass over bytes. Raise `ImageUnusable` if there are fewer."""
        while size:
            size -= len(self.read_exactly(min(size, CHUNK_BYTES)))


def decompressed(source: Readable, head: bytes) -> Readable:
    """Return what reads the data of `source`, which begins with `head`."""
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=cast("BinaryIO", source))
    if not head.startswith(_ZSTANDARD):
        return source
    if (module := _zstandard()) is None:
        raise ImageUnusable(
            "it is compressed with Zstandard; install a package for it, with "
            "pip install 'cellblock[zstd]'"
        )
    return module.ZstdFile(source)


@functools.cache
def _zstandard() -> Any:
    """Return the module of Python 3.14, or the package with the same interface, or None."""
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _zstandard_error() -> type[Exception]:
    return EOFError if (module := _zstandard()) is None else module.ZstdError
