"""The options that the commands have in common: where and how code runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import click

from .sizes import parse_size

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def _memory(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not 1 <= value < math.inf:
        raise click.BadParameter(
            f"{value:g} is not a number of seconds from 1 on", context, parameter
        )
    return value


_OPTIONS = (
    click.option(
        "--timeout",
        type=float,
        default=60,
        show_default=True,
        metavar="SECONDS",
        callback=_seconds,
        help="How long one block may run.",
    ),
    click.option(
        "--memory",
        "memory_bytes",
        metavar="SIZE",
        callback=_memory,
        help="How much memory, such as 512M or 2G.",
    ),
    click.option(
        "--network",
        is_flag=True,
        help="Give the sandbox this machine's network. Without it there is none.",
    ),
    click.option(
        "--package",
        "packages",
        multiple=True,
        metavar="NAME",
        help="Install a package first. Can be repeated.",
    ),
    click.option(
        "--work-dir", metavar="FOLDER", help="The folder that blocks share.  [default: coding]"
    ),
)


def common_options(command: CommandT) -> CommandT:
    """Give `command` the options, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
