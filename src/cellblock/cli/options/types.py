"""The types of option values that click does not have."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from typing import Any, cast

import click

from ..sizes import parse_size

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class FiniteFloat(click.FloatRange):
    """A number in a range, neither infinite nor nan."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See `click.ParamType`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Port(click.IntRange):
    """The number of a port."""

    name = "port number"


class Size(click.ParamType[int]):
    """A number of bytes, such as 512M. At least `minimum`."""

    name = "size"

    def __init__(self, minimum: int = 1) -> None:
        self._minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See `click.ParamType`."""
        try:
            size = value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < self._minimum:
            self.fail(f"{value} is too small", param, ctx)
        return size


class Amount(click.ParamType[tuple[str, float]]):
    """A name and how much of it, such as CPU=0.5."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """See `click.ParamType`."""
        name, _, amount = str(value).partition("=")
        try:
            number = float(amount)
        except ValueError:
            number = 0.0
        if not name or not 0 < number < math.inf:
            self.fail(f"{value} has not the form NAME=AMOUNT, such as CPU=0.5", param, ctx)
        return name, number


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """See `click.ParamType`."""
        try:
            found = json.loads(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"this is not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail('use a JSON object, such as {"name": 1}', param, ctx)
        return cast("dict[str, Any]", found)


class Since(click.ParamType[float]):
    """A time: in ISO 8601 (UTC if it names no zone), or how long ago. In seconds since 1970."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See `click.ParamType`."""
        if isinstance(value, float):
            return value
        number, unit = value[:-1], value[-1:]
        if number.isascii() and number.isdigit() and unit in _UNIT_SECONDS:
            return max(0.0, time.time() - int(number) * _UNIT_SECONDS[unit])
        try:
            found = datetime.fromisoformat(value)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time, such as 2026-11-26, 2026-11-26T19:00 or 24h (s, m, h, "
                "d, w ago)",
                param,
                ctx,
            )
