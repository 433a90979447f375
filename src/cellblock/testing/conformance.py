"""Check that an executor or a box, built in or your own, keeps its contract.

    python -m cellblock.testing.conformance sandbox
    python -m cellblock.testing.conformance mypackage.mymodule:MyExecutor --only time_limit
    python -m cellblock.testing.conformance box

The class must accept ``work_dir`` and ``timeout``, and for some checks ``limits`` and
``save_output``; that of a box ``idle_seconds``.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import TextIO, TypeVar

from . import boxes, checks
from .boxes.registry import BOX_CHECKS, BOXES, BoxTarget
from .registry import CHECKS, Check, checks_for
from .target import EXECUTORS, CheckSkipped, ConformanceTarget

T = TypeVar("T")

__all__ = [
    "BOX_CHECKS",
    "CHECKS",
    "Check",
    "CheckSkipped",
    "BoxTarget",
    "ConformanceTarget",
    "boxes",
    "checks",
    "checks_for",
    "main",
    "run",
    "run_box_checks",
]


async def run(target: ConformanceTarget, only: str = "", out: TextIO = sys.stdout) -> int:
    """Run the checks whose names contain `only`, and return the number of failures.

    Writes the outcome of each check to `out`.
    """
    return await _run_all(checks_for(target), target, only, out)


async def run_box_checks(target: BoxTarget, only: str = "", out: TextIO = sys.stdout) -> int:
    """Run the checks of boxes, as `run` does."""
    return await _run_all(BOX_CHECKS, target, only, out)


async def _run_all(
    found: Mapping[str, Callable[[T], Awaitable[None]]], target: T, only: str, out: TextIO
) -> int:
    failed, skipped = list[str](), list[str]()
    for name, function in found.items():
        if only not in name:
            continue
        try:
            await function(target)
        except CheckSkipped as reason:
            skipped.append(f"{name}: {reason}")
            out.write(f"skipped   {name}\n")
        except Exception:
            failed.append(name)
            out.write(f"FAILED    {name}\n{traceback.format_exc()}\n")
        else:
            out.write(f"ok        {name}\n")
        out.flush()
    for line in skipped:
        out.write(f"skipped: {line}\n")
    out.write(f"{len(failed)} failed\n")
    return len(failed)


def main() -> None:
    """Run the command and exit: with 0 if no check failed, 1 if one did, 2 for a usage error."""
    import click

    @click.command()
    @click.argument("executor")
    @click.option("--only", default="", help="Run the checks whose names contain this text.")
    @click.option(
        "--set",
        "options",
        multiple=True,
        metavar="NAME=TEXT",
        help="Argument for the executor, such as image=mine:1. Can be given several times.",
    )
    def conformance(executor: str, only: str, options: tuple[str, ...]) -> None:
        """Run the conformance checks on EXECUTOR.

        EXECUTOR is sandbox, local, session, docker, docker-session, jupyter, box, docker-box or
        module:Class.
        """
        known = {**EXECUTORS, **BOXES}
        factory = known.get(executor, executor)
        if ":" not in factory:
            raise click.BadParameter(
                f"{executor!r} is neither one of {', '.join(known)} nor module:Class"
            )
        given = dict(option.split("=", 1) for option in options)
        target = BoxTarget(factory, given)
        is_box = target.is_box
        work = (
            run_box_checks(target, only) if is_box else run(ConformanceTarget(factory, given), only)
        )
        sys.exit(1 if asyncio.run(work) else 0)

    conformance(prog_name="python -m cellblock.testing.conformance")


if __name__ == "__main__":
    main()
