"""Values that go into a session and come out of it: JSON, bytes and Arrow tables.

Reading them runs no code. Tables use the streaming format of Arrow IPC; both sides need pyarrow for
them.
"""

from __future__ import annotations

import datetime
import json
import reprlib
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

from .arrow_stream import check_stream
from .messages import SessionVariable

_MAX_REPR = 120  # characters
_CHECK_SECONDS = 60.0  # for a table, in the process that reads it
# The methods of arrays and series that return a list, or the Python number of a NumPy scalar.
_LIST_METHODS = ("tolist", "to_list")
_ADVICE = (
    ((set, frozenset), "list(value)"),
    ((datetime.date, datetime.time), "value.isoformat()"),
    ((datetime.timedelta,), "value.total_seconds()"),
    ((bytes, bytearray), "base64.b64encode(value).decode()"),
)


class UnsupportedValueError(TypeError):
    """A value is of a type that cannot be exchanged with a session."""


def encode(value: Any) -> tuple[str, bytes]:
    """Return the kind of `value` and its bytes. Raise `UnsupportedValueError`.

    The kind is "json", "bytes", "arrow" (a table) or "frame" (a pandas DataFrame). Arrays and
    series become lists.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(cast("bytes", value))
    try:
        if (kind := _table_kind(value)) is not None:
            return kind, _to_arrow(value)
        return "json", json.dumps(value, default=_to_list).encode()
    except UnsupportedValueError:
        raise
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise UnsupportedValueError(
            f"A value of type {type(value).__name__} cannot be exchanged with a session: {error}."
        ) from None


def decode(kind: str, data: bytes) -> Any:
    """Return the value that `encode` encoded as `data` of `kind`.

    Both kinds of tables become a `pyarrow.Table`. Raise `UnsupportedValueError`.
    """
    match kind:
        case "bytes":
            return data
        case "arrow" | "frame":
            return _read_table(data)
        case "json":
            return json.loads(data)
        case _:
            raise UnsupportedValueError(f"The kind of value {kind!r} is unknown.")


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
        # Without a pool of threads, which would prevent the next checkpoint.
        value = pyarrow.Table.from_pandas(value, nthreads=1)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    return sink.getvalue().to_pybytes()


def _read_table(data: bytes) -> Any:
    """Return the table in `data`, which user code can forge. Raise `ValueError` and others."""
    pyarrow = _pyarrow()
    check_stream(data)
    table, deadline = pyarrow.ipc.open_stream(data).read_all(), time.monotonic() + _CHECK_SECONDS
    for column in table.columns:
        for chunk in column.chunks:
            _check_views(chunk, len(data))
            # Forged offsets could make it read past its end.
            chunk.validate(full=True)
            if time.monotonic() > deadline:
                raise ValueError(f"it takes more than {_CHECK_SECONDS:.0f} s to check the table")
    return table


def _check_views(chunk: Any, size: int) -> None:
    """Raise `ValueError` if the texts of a column of views overlap.

    To check such a column can take hours, because each text is checked.
    """
    pending = [chunk.type]
    while pending:
        kind = pending.pop()
        if str(kind) in ("string_view", "binary_view"):
            if kind != chunk.type:
                raise ValueError("views in nested columns are not supported")
            with memoryview(chunk.buffers()[1] or b"") as views:
                lengths = views.cast("B").cast("i")[::4].tolist()
            if sum(map(abs, lengths)) > size:
                raise ValueError("the texts of a column overlap")
        if hasattr(kind, "value_type"):
            pending.append(kind.value_type)
        pending += [kind.field(index).type for index in range(kind.num_fields)]


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc  # pyright: ignore[reportUnusedImport] - `pyarrow` does not load it itself
    except ImportError:
        raise UnsupportedValueError(
            "To exchange tables with a session, install pyarrow: pip install pyarrow."
        ) from None
    return pyarrow


def _to_list(value: Any) -> Any:
    """Return an array or a series as a list, which JSON can hold. Raise `TypeError`."""
    for name in _LIST_METHODS:
        if callable(method := getattr(value, name, None)):
            return method()
    kind = cast("type[Any]", type(value))
    advice = next((text for types, text in _ADVICE if issubclass(kind, types)), None)
    raise TypeError(
        f"JSON has no {kind.__name__}. "
        f"Pass {advice or 'JSON values, bytes, an array or a table'} instead"
    )


def describe_variables(
    variables: Mapping[str, Any], hidden: Mapping[str, Any]
) -> list[SessionVariable]:
    """List the variables of user code, sorted by name."""
    found: list[SessionVariable] = []
    for name, value in list(variables.items()):
        if name.startswith("_") or (name in hidden and hidden[name] is value):
            continue
        kind = cast("type[Any]", type(value))
        shown = (
            kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        found.append(SessionVariable(name, shown, _size_bytes(value), _short_repr(value)))
    return sorted(found, key=lambda entry: entry.name)


def _size_bytes(value: Any) -> int:
    try:
        size = getattr(value, "nbytes", None)
        if size is None and hasattr(value, "memory_usage"):
            size = value.memory_usage()
            size = size.sum() if hasattr(size, "sum") else size
        return int(sys.getsizeof(value) if size is None or callable(size) else size)
    except Exception:
        return 0


def _short_repr(value: Any) -> str:
    try:
        text = reprlib.repr(value)
    except Exception as error:
        return f"<no repr: {type(error).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR - 1]}…"
