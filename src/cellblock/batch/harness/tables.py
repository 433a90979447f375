"""Tables of pandas as JSON: their columns are arrays or lists, and their types are names.

A table is made anew from these on the other side, so nothing of the sender's class comes across.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Code = Callable[[Any], Any]
_MAX_LEVELS = 20
_KINDS = {
    "DataFrame": "DataFrame",
    "Series": "Series",
    "Index": "Index",
    "Timestamp": "Timestamp",
    "Timedelta": "Timedelta",
    "NaTType": "NaT",
    "NAType": "NA",
}


def encode_table(value: Any, kind: type, encode: Code) -> list[Any] | None:
    """Return a value of pandas as JSON; None if it is of no class whose objects are data."""
    names = [one.__name__ for one in kind.__mro__ if one.__module__.partition(".")[0] == "pandas"]
    match next((_KINDS[name] for name in names if name in _KINDS), None):
        case "DataFrame":
            columns = [_encode_column(value.iloc[:, at], encode) for at in range(value.shape[1])]
            axes = [_encode_index(axis, encode) for axis in (value.index, value.columns)]
            return ["DataFrame", *axes, columns]
        case "Series":
            index = _encode_index(value.index, encode)
            return ["Series", index, encode(value.name), _encode_column(value, encode)]
        case "Index":
            return ["Index", _encode_index(value, encode)]
        case "Timestamp" | "Timedelta" as name:
            zone = None if name == "Timedelta" or value.tz is None else str(value.tz)
            return [name, int(value.value), zone]
        case None:
            return None
        case name:
            return [name]


def _encode_index(index: Any, encode: Code) -> list[Any]:
    if index.nlevels > 1:
        levels = [index.get_level_values(level) for level in range(index.nlevels)]
        return ["levels", *[_encode_index(level, encode) for level in levels]]
    if type(index).__name__ == "RangeIndex":
        return ["range", encode(index.name), index.start, index.stop, index.step]
    return ["flat", encode(index.name), _encode_column(index, encode)]


def _encode_column(values: Any, encode: Code) -> list[Any]:
    """Return the name of the type of a Series or Index, and its values."""
    kind = values.dtype
    if str(kind) == "category":
        categorical = values.array
        parts = [_encode_column(categorical.categories, encode), bool(categorical.ordered)]
        return ["category", *parts, encode(categorical.codes)]
    if kind.kind in "Mm":
        zone = getattr(kind, "tz", None)
        text = str(kind)  # such as datetime64[ns, UTC]
        unit = text[text.index("[") + 1 : -1].partition(",")[0]
        times = values.to_numpy(f"{kind.kind}8[{unit}]")
        return ["time", None if zone is None else str(zone), encode(times)]
    if type(kind).__module__.partition(".")[0] == "numpy" and kind.kind in "biufc":
        return ["array", encode(values.to_numpy())]
    return ["list", str(kind), encode(list(values.astype(object)))]


def decode_table(tag: str, parts: list[Any], decode: Code) -> Any:
    """Return what `encode_table` encoded. Raise whatever fits if it is not valid."""
    pandas = _pandas()
    match tag, parts:
        case "DataFrame", [index, columns, [*encoded]]:
            axis = _decode_index(index, decode)
            decoded = [_decode_column(column, decode, axis) for column in encoded]
            frame = pandas.DataFrame(dict(enumerate(decoded)), index=axis)
            frame.columns = _decode_index(columns, decode)
            return frame
        case "Series", [index, name, column]:
            series = _decode_column(column, decode, _decode_index(index, decode))
            series.name = decode(name)
            return series
        case "Index", [index]:
            return _decode_index(index, decode)
        case "Timestamp" | "Timedelta", [int(number), None | str() as zone]:
            value = getattr(pandas, tag)(number, unit="ns")
            return value if zone is None else value.tz_localize("UTC").tz_convert(zone)
        case "NaT" | "NA", []:
            return getattr(pandas, tag)
        case _:
            raise ValueError(f"invalid {tag}")


def _decode_index(index: Any, decode: Code) -> Any:
    pandas = _pandas()
    match index:
        case ["levels", *levels] if len(levels) <= _MAX_LEVELS:
            return pandas.MultiIndex.from_arrays([_decode_index(one, decode) for one in levels])
        case ["range", name, int(start), int(stop), int(step)]:
            return pandas.RangeIndex(start, stop, step, name=decode(name))
        case ["flat", name, column]:
            return pandas.Index(_decode_column(column, decode, None), name=decode(name))
        case _:
            raise ValueError("invalid index")


def _decode_column(column: Any, decode: Code, index: Any) -> Any:
    pandas = _pandas()
    match column:
        case ["category", categories, bool(ordered), codes]:
            values = pandas.Categorical.from_codes(
                decode(codes),
                categories=pandas.Index(_decode_column(categories, decode, None)),
                ordered=ordered,
            )
            return pandas.Series(values, index=index)
        case ["time", None | str() as zone, times]:
            series = pandas.Series(decode(times), index=index)
            if zone is not None:
                series = series.dt.tz_localize("UTC").dt.tz_convert(zone)
            return series
        case ["array", values]:
            return pandas.Series(decode(values), index=index)
        case ["list", str(kind), values]:
            return pandas.Series(decode(values), index=index, dtype=kind)
        case _:
            raise ValueError("invalid column")


def _pandas() -> Any:
    __import__("pandas")
    return sys.modules["pandas"]
