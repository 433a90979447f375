"""Values as JSON, between tests and the program that they test. Nothing is ever unpickled.

A scalar is itself, another value a list: a tag, then what it consists of. `Refer` encodes what is
not plain data, and `Resolve` finds it again.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from typing import Any, cast

from .tables import decode_table, encode_table

Refer = Callable[[object], list[Any]]
Resolve = Callable[[str, list[Any]], object]
_SCALARS = frozenset((type(None), bool, int, float, str))
_NOT_INT = _SCALARS - {int}
_MAX_INT = 1 << 63  # larger ones are sent as hexadecimal digits, which take no quadratic time


class InvalidValue(ValueError):
    """What the other side sent is not a value."""


def encode(value: Any, refer: Refer) -> Any:
    """Return `value` as JSON. Subclasses of builtin types are sent as these types."""
    kind = cast("type[object]", type(value))
    if kind in _NOT_INT:
        return value
    for base in kind.__mro__:
        if (encoder := _ENCODERS.get(base)) is not None:
            return encoder(value, refer)
    return _encode_by_name(value, kind, refer)


def _encode_int(value: int, _refer: Refer) -> Any:
    number = int.__index__(value)
    return number if -_MAX_INT < number < _MAX_INT else ["int", hex(number)]


def _sequence(tag: str) -> Callable[[Any, Refer], list[Any]]:
    def encode_items(value: Any, refer: Refer) -> list[Any]:
        items = list[Any](value)
        kinds = set(map(type, items))
        if kinds <= _NOT_INT or (
            kinds == {int} and -_MAX_INT < min(items) and max(items) < _MAX_INT
        ):
            return [tag, *items]
        return [tag, *[encode(item, refer) for item in items]]

    return encode_items


def _encode_dict(value: dict[Any, Any], refer: Refer) -> list[Any]:
    return ["dict", *[encode(part, refer) for item in value.items() for part in item]]


def _encode_complex(value: complex, _refer: Refer) -> list[Any]:
    return ["complex", value.real, value.imag]


def _encode_bytes(value: bytes, _refer: Refer) -> list[Any]:
    return ["bytes", bytes(value).hex()]


def _encode_bytearray(value: bytearray, _refer: Refer) -> list[Any]:
    return ["bytearray", bytes(value).hex()]


def _encode_range(value: range, refer: Refer) -> list[Any]:
    return ["range", *[encode(part, refer) for part in (value.start, value.stop, value.step)]]


_ENCODERS: dict[type, Callable[[Any, Refer], Any]] = {
    int: _encode_int,
    float: lambda value, _refer: float.__float__(value),
    str: lambda value, _refer: str.__str__(value),
    bytes: _encode_bytes,
    bytearray: _encode_bytearray,
    complex: _encode_complex,
    list: _sequence("list"),
    tuple: _sequence("tuple"),
    set: _sequence("set"),
    frozenset: _sequence("frozenset"),
    collections.deque: _sequence("deque"),
    dict: _encode_dict,
    range: _encode_range,
}


def _encode_by_name(value: Any, kind: type, refer: Refer) -> Any:
    """Encode values of modules that a program may not have imported."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    match name:
        case "decimal.Decimal":
            return ["decimal", str(value)]
        case "datetime.datetime" | "datetime.date" | "datetime.time":
            return [name, value.isoformat()]
        case "datetime.timedelta":
            return [name, value.days, value.seconds, value.microseconds]
        case "fractions.Fraction":
            return ["fraction", hex(value.numerator), hex(value.denominator)]
        case "numpy.ndarray" if value.dtype.kind in "biufcMm":
            data = value.tobytes().hex()
            return ["array", value.dtype.str, _sequence("tuple")(value.shape, refer), data]
        case "numpy.ndarray":
            return ["objects", _sequence("list")(value.tolist(), refer)]
        case _ if "numpy.generic" in [f"{one.__module__}.{one.__name__}" for one in kind.__mro__]:
            return encode(value.item(), refer)
        case _ if "pandas" in sys.modules:
            table = encode_table(value, kind, lambda part: encode(part, refer))
            return refer(value) if table is None else table
        case _:
            return refer(value)


def decode(value: Any, resolve: Resolve) -> Any:
    """Return the value that `encode` returned as `value`. Raise `InvalidValue` if it is none."""
    if type(value) in _SCALARS:
        return value
    match value:
        case [str(tag), *parts]:
            try:
                return _decode_tagged(tag, parts, resolve)
            except InvalidValue:
                raise
            except Exception as error:  # whatever is wrong with it
                raise InvalidValue(f"invalid {tag[:20]}: {error}"[:200]) from error
        case _:
            raise InvalidValue(f"invalid value of type {type(value).__name__}")


def _decode_tagged(tag: str, parts: list[Any], resolve: Resolve) -> Any:
    if (container := _CONTAINERS.get(tag)) is not None:
        return container(_decode_items(parts, resolve))
    match tag, parts:
        case "dict", _:
            items = iter(_decode_items(parts, resolve))
            return dict(zip(items, items, strict=True))
        case _, [str(text)] if tag in _FROM_TEXT:
            return _FROM_TEXT[tag](text)
        case "complex", [float(real), float(imaginary)]:
            return complex(real, imaginary)
        case "fraction", [str(above), str(below)]:
            return _named("fractions", "Fraction")(int(above, 16), int(below, 16))
        case "array", [str(kind), shape, str(data)]:
            array = _named("numpy", "frombuffer")(bytes.fromhex(data), kind)
            return array.reshape(decode(shape, resolve)).copy()
        case "objects", [items]:
            return _named("numpy", "array")(decode(items, resolve))
        case "DataFrame" | "Series" | "Index" | "Timestamp" | "Timedelta" | "NaT" | "NA", _:
            return decode_table(tag, parts, lambda part: decode(part, resolve))
        case _:
            return resolve(tag, parts)


def _decode_items(parts: list[Any], resolve: Resolve) -> list[Any]:
    if set(map(type, parts)) <= _SCALARS:
        return parts
    return [decode(part, resolve) for part in parts]


def _named(module: str, name: str) -> Any:
    if module not in sys.modules:
        __import__(module)
    return getattr(sys.modules[module], name)


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "int": lambda digits: int(digits, 16),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "decimal": lambda digits: _named("decimal", "Decimal")(digits),
    "datetime.datetime": lambda text: _named("datetime", "datetime").fromisoformat(text),
    "datetime.date": lambda text: _named("datetime", "date").fromisoformat(text),
    "datetime.time": lambda text: _named("datetime", "time").fromisoformat(text),
}
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "range": lambda parts: range(*parts),
    "datetime.timedelta": lambda parts: _named("datetime", "timedelta")(*parts),
}
