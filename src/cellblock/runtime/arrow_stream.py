"""Check a stream of Arrow IPC before pyarrow reads it, which must not take more than its bytes.

See https://arrow.apache.org/docs/format/Columnar.html and the files Message.fbs and Schema.fbs
there. User code can forge a stream that is small and becomes huge when it is read.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_FREE_ROWS = 10_000_000  # that a table may have in any case: columns of nulls take no bytes
_ROWS_PER_BYTE = 8  # of a column of booleans
_MAX_DEPTH = 60  # of nested fields


class ArrowStreamError(ValueError):
    """The stream is invalid, or would become larger when it is read."""


class _Table:
    """A table in a flatbuffer. The fields are numbered in the order of the schema."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self._place = data, place
        vtable = place - _read("<i", data, place)
        self._offsets = [
            _read("<H", data, vtable + at) for at in range(4, _read("<H", data, vtable), 2)
        ]

    def has(self, field: int) -> bool:
        return field < len(self._offsets) and self._offsets[field] != 0

    def number(self, field: int, form: str) -> int:
        """Return a number, 0 if the field is not there."""
        return _read(form, self._data, self._place + self._offsets[field]) if self.has(field) else 0

    def _target(self, field: int) -> int:
        place = self._place + self._offsets[field]
        return place + _read("<I", self._data, place)

    def table(self, field: int) -> _Table:
        if not self.has(field):
            raise ArrowStreamError("a table of its metadata is missing")
        return _Table(self._data, self._target(field))

    def tables(self, field: int) -> Iterator[_Table]:
        if self.has(field):
            start = self._target(field)
            for index in range(_read("<I", self._data, start)):
                place = start + 4 * (index + 1)
                yield _Table(self._data, place + _read("<I", self._data, place))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the elements of a vector of structures with two 64-bit numbers."""
        if self.has(field):
            start = self._target(field)
            for index in range(_read("<I", self._data, start)):
                place = start + 4 + 16 * index
                yield _read("<q", self._data, place), _read("<q", self._data, place + 8)


def check_stream(data: bytes) -> None:
    """Raise `ArrowStreamError` unless what `data` becomes is bounded by its size.

    That excludes compressed buffers, buffers that overlap, dictionaries that are shared or grow,
    and more rows than the bytes can hold.
    """
    view, rows, limit = memoryview(data), 0, max(_FREE_ROWS, _ROWS_PER_BYTE * len(data))
    for message, body_size in _messages(view):
        kind = message.number(1, "<B")
        if kind == _SCHEMA:
            _check_dictionaries(message.table(2))
            continue
        if kind == _DICTIONARY_BATCH:
            if message.table(2).number(2, "<B"):
                raise ArrowStreamError("it has a dictionary that grows")
            rows += _check_batch(message.table(2).table(1), body_size, limit)
        elif kind == _RECORD_BATCH:
            rows += _check_batch(message.table(2), body_size, limit)
        else:
            raise ArrowStreamError(f"it has a message of the unknown kind {kind}")
        if rows > limit:
            raise ArrowStreamError(f"it has more than {limit} rows in {len(data)} bytes")


def _messages(data: memoryview) -> Iterator[tuple[_Table, int]]:
    """Yield each message and the size of its body."""
    place = 0
    while place < len(data):
        if _read("<I", data, place) != _CONTINUATION:
            raise ArrowStreamError("it is not in the format that Arrow has had since 0.15")
        size, start = _read("<i", data, place + 4), place + 8
        if size == 0:
            return
        if size < 0 or start + size > len(data):
            raise ArrowStreamError("a message is longer than the data")
        message = _Table(metadata := data[start : start + size], _read("<I", metadata, 0))
        body_size = message.number(3, "<q")
        place = start + size + body_size
        if body_size < 0 or place > len(data):
            raise ArrowStreamError("a message is longer than the data")
        yield message, body_size


def _check_batch(batch: _Table, body_size: int, limit: int) -> int:
    """Check a batch of columns and return its number of rows."""
    if batch.has(3):
        raise ArrowStreamError("it is compressed")
    rows = batch.number(0, "<q")
    lengths = [rows, *(length for length, _ in batch.pairs(1))]
    if min(lengths) < 0 or max(lengths) > limit:
        raise ArrowStreamError(f"it claims {max(lengths)} rows in {body_size} bytes")
    sizes = [size for _, size in batch.pairs(2)]
    if min(sizes, default=0) < 0 or sum(sizes) > body_size:
        raise ArrowStreamError("its buffers overlap")
    return rows


def _check_dictionaries(schema: _Table) -> None:
    seen, level = set[int](), list(schema.tables(1))
    for _ in range(_MAX_DEPTH):
        for field in level:
            if field.has(4):
                number = field.table(4).number(0, "<q")
                if number in seen:
                    raise ArrowStreamError("its columns share a dictionary")
                seen.add(number)
        level = list(itertools.chain.from_iterable(field.tables(5) for field in level))
        if not level:
            return
    raise ArrowStreamError(f"its columns are nested more than {_MAX_DEPTH} deep")


def _read(form: str, data: memoryview, place: int) -> int:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise ArrowStreamError("its metadata is invalid")
    return int(struct.unpack_from(form, data, place)[0])
