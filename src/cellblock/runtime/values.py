"""Values that go into a live session and out of it: JSON, bytes, Arrow tables. Nothing that would be run to be read.

Tables have the "IPC streaming format" of the Arrow columnar specification; `pyarrow` is needed for it on both sides.
"""

from __future__ import annotations

import json
import reprlib
import sys
from collections.abc import Mapping
from typing import Any, cast

_LONGEST = 120  # characters of a short repr


class NotExchangeable(TypeError):
    """A value is none of those that can be exchanged."""


def encode(value: Any) -> tuple[str, bytes]:
    """Give the kind of `value`, "json", "bytes", "arrow" or "frame" (of pandas), and its bytes. Raises `NotExchangeable`."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(cast("bytes", value))
    if (kind := _table_kind(value)) is not None:
        return kind, _to_arrow(value)
    try:
        return "json", json.dumps(_plain(value)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotExchangeable(
            f"A value of type {type(value).__name__} cannot be exchanged ({error}): JSON values, bytes and Arrow tables can."
        ) from None


def decode(kind: str, data: bytes) -> Any:
    """Give the value of `kind` that `encode` made `data` of: a `pyarrow.Table` for both kinds of tables."""
    match kind:
        case "bytes":
            return data
        case "arrow" | "frame":
            table = _pyarrow().ipc.open_stream(data).read_all()
            table.validate(
                full=True
            )  # offsets that code has made up would have it read past its end
            return table
        case "json":
            return json.loads(data)
        case _:
            raise NotExchangeable(f"Values of the kind {kind!r} are not known here.")


def _table_kind(value: Any) -> str | None:
    module = type(value).__module__.partition(".")[0]
    if module == "pandas" and type(value).__name__ == "DataFrame":
        return "frame"
    return "arrow" if module in ("pyarrow", "polars") and hasattr(value, "schema") else None


def _to_arrow(value: Any) -> bytes:
    pyarrow = _pyarrow()
    if hasattr(value, "to_arrow"):
        value = value.to_arrow()
    elif not isinstance(value, pyarrow.Table | pyarrow.RecordBatch):
        # In this thread: the threads of a pool would be in the way of the next checkpoint.
        value = pyarrow.Table.from_pandas(value, nthreads=1)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    return sink.getvalue().to_pybytes()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc  # pyright: ignore[reportUnusedImport] - it is no part of pyarrow until it is imported
    except ImportError:
        raise NotExchangeable(
            "A table is exchanged as an Arrow table, which needs pyarrow: pip install pyarrow."
        ) from None
    return pyarrow


def _plain(value: Any) -> Any:
    """Give numbers of numpy as Python's, which JSON knows."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def describe(variables: Mapping[str, Any], hidden: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the variables that cells have made: name, type, size in bytes (of the object itself), short repr."""
    found: list[dict[str, Any]] = []
    for name, value in list(variables.items()):
        if name.startswith("_") or (name in hidden and hidden[name] is value):
            continue
        kind = cast("type[Any]", type(value))
        shown = (
            kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        found.append(
            {"name": name, "type": shown, "size_bytes": _size(value), "repr": _short(value)}
        )
    return sorted(found, key=lambda entry: entry["name"])


def _size(value: Any) -> int:
    try:
        size = getattr(value, "nbytes", None)
        if size is None and hasattr(value, "memory_usage"):
            size = value.memory_usage()
            size = size.sum() if hasattr(size, "sum") else size
        return int(sys.getsizeof(value) if size is None or callable(size) else size)
    except Exception:
        return 0


def _short(value: Any) -> str:
    try:
        text = reprlib.repr(value)
    except Exception as error:
        return f"<no repr: {type(error).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
