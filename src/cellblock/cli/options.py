"""The options that the commands share: where and how code runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import click

from .sizes import parse_size

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def _parse_memory(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _check_seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not 1 <= value < math.inf:
        raise click.BadParameter(
            f"{value:g} is not allowed: use 1 second or more", context, parameter
        )
    return value


_OPTIONS = (
    click.option(
        "--timeout",
        type=float,
        default=60,
        show_default=True,
        metavar="SECONDS",
        callback=_check_seconds,
        help="Time limit of one block.",
    ),
    click.option(
        "--memory",
        "memory_bytes",
        metavar="SIZE",
        callback=_parse_memory,
        help="Memory limit of one block, such as 512M or 2G.",
    ),
    click.option(
        "--network",
        is_flag=True,
        help="Allow access to the network. By default there is none.",
    ),
    click.option(
        "--package",
        "packages",
        multiple=True,
        metavar="NAME",
        help="Install a package first. Can be given several times.",
    ),
    click.option(
        "--work-dir", metavar="FOLDER", help="Folder that the blocks share.  [default: coding]"
    ),
)


def common_options(command: CommandT) -> CommandT:
    """Add the shared options to `command` and return it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
