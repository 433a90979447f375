"""`cellblock batch`: its options and their validation."""

from __future__ import annotations

from typing import Any

import click

from .options.settings import BatchSettings
from .options.shared import check_env, place_options
from .options.types import FiniteFloat

_EXECUTORS = ("sandbox", "local", "docker")
_WALL_FACTOR, _MIN_WALL_SECONDS = 6, 60  # of the CPU seconds; seconds


@click.command("batch")
@click.argument("file")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="The file of the verdicts. If it has some already, the batch continues.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("jsonl", "humaneval", "mbpp")),
    default="jsonl",
    show_default=True,
    help="The form of FILE: programs, or the problems of a data set as it is published.",
)
@click.option(
    "--samples",
    metavar="FILE",
    help="Answers to the problems of a data set: JSON lines with task_id and completion. By "
    "default its own answers.",
)
@click.option(
    "--executor",
    type=click.Choice(_EXECUTORS),
    default="sandbox",
    show_default=True,
    help="The executor that runs the programs.",
)
@click.option(
    "--image", metavar="IMAGE", help="Image for --executor docker.  [default: python:3-slim]"
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="How many programs run at a time.  [default: one on each usable CPU]",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Run the programs on the nodes of a Ray cluster, such as auto or head:6379.",
)
@click.option(
    "--cpu-seconds",
    type=FiniteFloat(min=0, min_open=True),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="CPU time of one program. A busy machine does not change it.",
)
@click.option(
    "--wall-seconds",
    type=FiniteFloat(min=1),
    metavar="SECONDS",
    help="Time limit of one program.  [default: 6 times the CPU time, at least 60]",
)
@place_options
@click.option(
    "--as-completed",
    is_flag=True,
    help="Leave the verdicts in the order in which they became known.",
)
def command(**options: Any) -> int:
    """Judge the programs of FILE, one JSON object on each line. If FILE is "-", read standard
    input.

    Each program runs in a fresh sandbox. Its verdict is added to the output file when it is known.
    A batch that was stopped or killed continues with the same command, and runs no program of the
    file again. At the end the verdicts are put in the order of the programs. A summary goes to
    standard error.

    The exit code is 0 if all programs passed, 1 if some did not, 2 for a usage error, and 3 if
    some could not be judged.
    """
    wall_seconds = options.pop("wall_seconds")
    if wall_seconds is None:
        wall_seconds = max(_MIN_WALL_SECONDS, _WALL_FACTOR * options["cpu_seconds"])
    settings = BatchSettings(timeout=wall_seconds, work_dir=None, **options)
    context = click.get_current_context()
    if settings.network and settings.executor == "local":
        context.fail("--network does not apply to --executor local, which always has the network")
    if settings.image is not None and settings.executor != "docker":
        context.fail("--image applies only to --executor docker")
    if settings.samples is not None and settings.form == "jsonl":
        context.fail("--samples applies only to --format humaneval and mbpp")
    if settings.file == "-" and settings.form != "jsonl":
        context.fail(f"--format {settings.form} needs a file, not standard input")
    check_env(settings.env, settings.executor)
    # Imported here, so that --help and usage errors stay fast.
    from .program_file import InvalidProgramFile
    from .run_batch import judge_file

    try:
        return judge_file(settings)
    except InvalidProgramFile as error:
        context.fail(str(error))
