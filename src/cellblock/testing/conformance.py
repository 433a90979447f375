"""Check that an executor, built in or your own, keeps the contract of executors.

    python -m cellblock.testing.conformance sandbox
    python -m cellblock.testing.conformance mypackage.mymodule:MyExecutor --only time_limit

The executor class must accept ``work_dir`` and ``timeout``, and for some checks ``limits`` and
``save_output``.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TextIO

from . import checks
from .registry import CHECKS, Check, checks_for
from .target import EXECUTORS, CheckSkipped, ConformanceTarget

__all__ = [
    "CHECKS",
    "Check",
    "CheckSkipped",
    "ConformanceTarget",
    "checks",
    "checks_for",
    "main",
    "run",
]


async def run(target: ConformanceTarget, only: str = "", out: TextIO = sys.stdout) -> int:
    """Run the checks whose names contain `only`, and return the number of failures.

    Writes the outcome of each check to `out`.
    """
    failed, skipped = list[str](), list[str]()
    for name, function in checks_for(target).items():
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

        EXECUTOR is sandbox, local, session, docker, docker-session, jupyter or module:Class.
        """
        factory = EXECUTORS.get(executor, executor)
        if ":" not in factory:
            raise click.BadParameter(
                f"{executor!r} is neither one of {', '.join(EXECUTORS)} nor module:Class"
            )
        sys.exit(
            1
            if asyncio.run(
                run(
                    ConformanceTarget(factory, dict(option.split("=", 1) for option in options)),
                    only,
                )
            )
            else 0
        )

    conformance(prog_name="python -m cellblock.testing.conformance")


if __name__ == "__main__":
    main()
