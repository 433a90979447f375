"""Wrong arguments: each has one meaning, and nothing is sent."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from ...box.base import Box
from .registry import check_box, raises


@check_box
async def a_wrong_command_is_a_value_error(box: Box) -> None:
    wrong: list[Any] = [[], [""], ["a\0b"], "a\0b", [1], None, 5, b"true", [b"true"], {"true": 1}]
    for command in wrong:
        for call in (box.exec, box.spawn):
            with raises(ValueError):
                await call(command)


async def _on_output(stream: int, data: bytes) -> None:
    """Nobody would await this."""


@check_box
async def wrong_options_of_a_command_are_value_errors(box: Box) -> None:
    wrong: list[Mapping[str, Any]] = [
        {"timeout": 0}, {"timeout": -1}, {"timeout": math.nan}, {"timeout": "1"}, {"timeout": True},
        {"env": {"A\0": ""}}, {"env": {"A": "\0"}}, {"env": {"A=B": ""}}, {"env": {"": ""}},
        {"env": {"A": 1}}, {"env": ["A=B"]}, {"cwd": "a\0b"}, {"cwd": 5}, {"stdin": 5},
        {"max_output_bytes": -1}, {"max_output_bytes": 1.5}, {"user": "a\0b"}, {"user": -1},
        {"merge_stderr": 1}, {"on_output": 1}, {"on_output": _on_output},
        {"on_output": functools.partial(_on_output, 1)},
    ]  # fmt: skip
    for options in wrong:
        with raises(ValueError):
            await box.exec(["true"], **options)


@check_box
async def wrong_paths_are_value_errors(box: Box) -> None:
    wrong: list[Any] = ["a\0b", None, 5, b"a"]
    for path in wrong:
        for call in (box.files.read, box.files.list, box.files.stat, box.files.remove):
            with raises(ValueError):
                await call(path)
    bad: list[Any] = [None, 5, ["x"]]
    for data in bad:
        with raises(ValueError):
            await box.files.write("file", data)
    for options in ({"mode": -1}, {"mode": 0o10000}, {"mode": "755"}):
        with raises(ValueError):
            await box.files.write("file", b"", **options)  # pyright: ignore[reportArgumentType] - on purpose
    with raises(ValueError):
        await box.files.read("file", limit_bytes=-1)
    assert await box.files.list() == []
