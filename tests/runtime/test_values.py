"""Tables from a session: what code forges never becomes more than the bytes that it sent."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from cellblock.runtime import values

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.ipc")

ROWS = 100_000
TEXTS = ["a", "bc", None, "d" * 40]
PLAIN: dict[str, Any] = {
    "numbers": pa.table({"x": [1, 2, None], "y": [True, False, None]}),
    "texts": pa.table({"x": TEXTS}),
    "views": pa.table({"x": pa.array(TEXTS, pa.string_view())}),
    "nulls": pa.table({"x": pa.nulls(ROWS)}),
    "dictionaries": pa.table({name: pa.array(TEXTS).dictionary_encode() for name in "xy"}),
    "nested": pa.table({"x": [{"a": [1, 2], "b": "c"}, None]}),
    "runs": pa.table({"x": pa.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"])}),
    "several batches": pa.concat_tables([pa.table({"x": [1, 2]})] * 3),
    "nothing": pa.table({}),
}


def stream(table: Any, **options: Any) -> bytes:
    sink, chosen = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=chosen) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def test_tables_come_out_as_they_went_in() -> None:
    crossed = {name: values.decode(*values.encode(table)) for name, table in PLAIN.items()}
    assert [name for name in PLAIN if not crossed[name].equals(PLAIN[name])] == []


def test_compressed_tables_are_refused() -> None:
    for name, codec in itertools.product(("numbers", "dictionaries"), ("lz4", "zstd")):
        with pytest.raises(ValueError, match="it is compressed"):
            values.decode("arrow", stream(PLAIN[name], compression=codec))


def test_a_dictionary_that_alone_is_compressed_is_refused() -> None:
    table = PLAIN["dictionaries"]
    plain, compressed = stream(table), stream(table, compression="zstd")
    batches = [
        [message.serialize().to_pybytes() for message in pa.ipc.MessageReader.open_stream(data)]
        for data in (plain, compressed)
    ]
    mixed = b"".join([*batches[1][:-1], batches[0][-1]])
    with pytest.raises(ValueError, match="it is compressed"):
        values.decode("arrow", mixed)


FORGED: dict[str, Any] = {
    "nulls": pa.table({"x": pa.Array.from_buffers(pa.null(), 1 << 30, [None])}),
    "runs": pa.table({"x": pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30]), ["a"])}),
    "empty structures": pa.table({"x": pa.Array.from_buffers(pa.struct([]), 1 << 30, [None])}),
}


def test_more_rows_than_the_bytes_can_hold_are_refused() -> None:
    for table in FORGED.values():
        with pytest.raises(ValueError, match="rows in"):
            values.decode("arrow", stream(table))


def test_views_of_the_same_text_are_refused() -> None:
    text, count = b"x" * 100_000, 1000
    views = struct.pack("<i4sii", len(text), text[:4], 0, 0) * count
    buffers = [None, pa.py_buffer(views), pa.py_buffer(text)]
    column = pa.Array.from_buffers(pa.string_view(), count, buffers)
    with pytest.raises(ValueError, match="overlap"):
        values.decode("arrow", stream(pa.table({"x": column})))


def test_dictionaries_that_grow_are_refused() -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(texts))
        for texts in (["a"], ["a", "b"])
    ]
    schema = pa.schema([("x", arrays[0].type)])
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for array in arrays:
            writer.write(pa.record_batch([array], schema=schema))
    with pytest.raises(ValueError, match="grows"):
        values.decode("arrow", sink.getvalue().to_pybytes())


def test_any_broken_byte_is_an_error_or_a_table() -> None:
    data = stream(PLAIN["dictionaries"])
    for place in range(len(data)):
        for byte in (0, 1, 127, 255):
            broken = data[:place] + bytes([byte]) + data[place + 1 :]
            try:
                values.decode("arrow", broken)
            except (ValueError, OSError, NotImplementedError, KeyError, TypeError):
                continue
