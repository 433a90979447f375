"""Read JSON objects of users: each error names the field, and says what belongs there."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def parse_object(line: str, what: str) -> Mapping[str, Any]:
    """Return the JSON object in `line`. Raise `ValueError`, which calls it `what`."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON: {error}.") from error
    return as_object(value, what)


def as_object(value: object, what: str) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object. Raise `ValueError`."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be a JSON object, not {value!r:.60}.")
    return cast("Mapping[str, Any]", value)


def check_keys(values: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Raise `ValueError` if `values` has keys that are not `known`."""
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(
            f"{what} has unknown keys: {', '.join(unknown)}. Known are {', '.join(sorted(known))}."
        )


def field_of(values: Mapping[str, Any], name: str, kind: type[T], what: str, default: T) -> T:
    """Return the field `name`, which is of the type `kind`, or `default`. Raise `ValueError`."""
    value = values.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{what}: {name} must be {_KINDS[kind]}, not {value!r:.60}.")
    return value


_KINDS: Mapping[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
