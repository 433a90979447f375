"""What crosses for a value as JSON. `FunctionSession` also sends this source into the sandbox."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from typing import Any, cast

_TEXTS = (decimal.Decimal, pathlib.PurePath, uuid.UUID)
_DATES = (datetime.date, datetime.time)


def plain_value(value: Any) -> Any:
    """Return dictionaries for Pydantic models, dataclasses and named tuples, lists for sets.

    Dates, decimals, paths and UUIDs become texts, and enumerations their values, at any depth. What
    is unknown stays what it is.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if (fields := _fields(value)) is not None:
        return {key: plain_value(each) for key, each in fields.items()}
    if isinstance(value, set | frozenset):
        return [*map(plain_value, _sorted(value))]
    if isinstance(value, list | tuple):
        return [*map(plain_value, cast("list[Any]", value))]
    if isinstance(value, enum.Enum):
        return plain_value(value.value)
    if isinstance(value, _DATES):
        return value.isoformat()
    return str(value) if isinstance(value, _TEXTS) else value


def _fields(value: Any) -> dict[Any, Any] | None:
    kind: Any = cast("Any", type(value))
    if issubclass(kind, dict):
        return value
    if hasattr(kind, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(kind, "_asdict") and issubclass(kind, tuple):
        return value._asdict()
    if dataclasses.is_dataclass(kind):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(kind)}
    return None


def _sorted(values: Any) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # of different types
        return list(values)
