"""The options that the commands share: where and how code runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

from ...environments.exposed_folder import exposure_of
from ...limits import MAX_SECONDS, MIN_MEMORY_BYTES
from ..sizes import parse_size

CommandT = TypeVar("CommandT", bound=Callable[..., object])
FolderCheck = Callable[[click.Context, click.Parameter, str | None], str | None]


def _parse_memory(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    try:
        size = None if value is None else parse_size(value)
        if size is not None and size < MIN_MEMORY_BYTES:
            raise ValueError(f"{value} is too small to start Python: use 8M or more")
        return size
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _check_seconds(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is None:
        return None
    if not 1 <= value <= MAX_SECONDS:
        bound = f"at most {MAX_SECONDS:g} seconds" if value > MAX_SECONDS else "1 second or more"
        raise click.BadParameter(f"{value:g} is not allowed: use {bound}", context, parameter)
    return value


def _note_home(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_ALLOW_HOME] = value


def work_dir_refusal(context: click.Context, folder: str) -> str:
    """Return why `folder` cannot be the work folder: it is the home, or contains it. "" if it can.

    `context` says if the home is allowed.
    """
    what, advice = exposure_of(folder), "Use a separate folder for the code."
    if what is None or (what == "your home folder" and is_home_allowed(context)):
        return ""
    if what == "your home folder":
        advice = f"{advice[:-1]}, or add --allow-home."
    return (
        f"code could read and change all files that you can, because {folder} is {what}. {advice}"
    )


def is_home_allowed(context: click.Context) -> bool:
    """Return True if `--allow-home` was given."""
    return bool(context.meta.get(_ALLOW_HOME))


def check_work_dir(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse the home folder, unless it is allowed, and what contains it."""
    if value is None or "\0" in value:
        return value
    if refusal := work_dir_refusal(context, value):
        raise click.BadParameter(refusal, context, parameter)
    return value


def _find_env(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the absolute path of a virtual environment."""
    if value is None:
        return None
    folder = os.path.abspath(os.path.expanduser(value))
    if "\0" in folder or not os.access(os.path.join(folder, "bin", "python"), os.X_OK):
        raise click.BadParameter(
            f"{value} is not a virtual environment, because bin/python is missing: make one with "
            "python -m venv",
            context,
            parameter,
        )
    return folder


def check_env(env: str | None, executor: str) -> None:
    """Raise `click.UsageError` if `env` is given with an executor that runs containers."""
    if env is not None and executor.startswith("docker"):
        raise click.UsageError(
            "--env does not apply to containers, which have the Python of their image: use --image "
            "or --package",
            click.get_current_context(),
        )


env_option = click.option(
    "--env",
    metavar="FOLDER",
    callback=_find_env,
    help="A virtual environment whose Python, packages and commands the blocks use.",
)
_ALLOW_HOME = "cellblock.allow_home"
_RUN_OPTIONS = (
    click.option(
        "--memory",
        "memory_bytes",
        metavar="SIZE",
        callback=_parse_memory,
        help="Memory limit of one block, such as 512M or 2G.",
    ),
    click.option(
        "--files",
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="How many files one block may make.  [default: 100000]",
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
    env_option,
)
_HOME_OPTION = click.option(
    "--allow-home",
    is_flag=True,
    is_eager=True,  # the check of --work-dir needs it
    expose_value=False,
    callback=_note_home,
    help="Accept your home folder as --work-dir: the code can change all of it.",
)


def common_options(
    default_timeout: float | None, check_work_dir: FolderCheck | None = check_work_dir
) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds the shared options to a command. None means no time limit.

    check_work_dir   the callback of `--work-dir`; None if the command checks it itself
    """
    work_dir = click.option(
        "--work-dir",
        metavar="FOLDER",
        callback=check_work_dir,
        help="Folder that the blocks share.  [default: coding]",
    )
    return _add_options(default_timeout, (work_dir, _HOME_OPTION))


def place_options(command: CommandT) -> CommandT:
    """Add the shared options without the time limit and those of the work folder."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


def run_options(default_timeout: float | None) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds the shared options without those of the work folder."""
    return _add_options(default_timeout, ())


def _add_options(
    default_timeout: float | None, more: tuple[Callable[[CommandT], CommandT], ...]
) -> Callable[[CommandT], CommandT]:
    default = "none" if default_timeout is None else f"{default_timeout:g}"
    timeout = click.option(
        "--timeout",
        type=float,
        default=default_timeout,
        metavar="SECONDS",
        callback=_check_seconds,
        help=f"Time limit of one block.  [default: {default}]",
    )

    def add_options(command: CommandT) -> CommandT:
        for option in reversed((timeout, *_RUN_OPTIONS, *more)):
            command = option(command)
        return command

    return add_options
