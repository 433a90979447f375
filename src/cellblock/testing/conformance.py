"""The contract as a program: run every check on an executor, of ours or of yours.

    python -m cellblock.testing.conformance sandbox
    python -m cellblock.testing.conformance mypackage.mymodule:MyExecutor --only time_limit

An executor is made with ``work_dir``, ``timeout`` and, in some checks, ``limits`` and ``save_output``.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TextIO

from . import checks
from .subject import CHECKS, KNOWN, Check, NotHere, Subject, checks_for

__all__ = ["CHECKS", "Check", "NotHere", "Subject", "checks", "checks_for", "main", "run"]


async def run(subject: Subject, only: str = "", out: TextIO = sys.stdout) -> int:
    """Run the checks whose names hold `only`; write what happens to `out`, and give the number of failures."""
    failed, not_here = list[str](), list[str]()
    for name, function in checks_for(subject).items():
        if only not in name:
            continue
        try:
            await function(subject)
        except NotHere as reason:
            not_here.append(f"{name}: {reason}")
            out.write(f"not here  {name}\n")
        except Exception:
            failed.append(name)
            out.write(f"FAILED    {name}\n{traceback.format_exc()}\n")
        else:
            out.write(f"ok        {name}\n")
        out.flush()
    for line in not_here:
        out.write(f"could not be checked: {line}\n")
    out.write(f"{len(failed)} failed\n")
    return len(failed)


def main() -> None:
    """Be the command: exit code 0 when nothing failed, 1 when something did, 2 for bad usage."""
    import click

    @click.command()
    @click.argument("executor")
    @click.option("--only", default="", help="Run the checks whose names hold this text.")
    @click.option(
        "--set",
        "options",
        multiple=True,
        metavar="NAME=TEXT",
        help="An argument of the executor: image=mine:1.",
    )
    def conformance(executor: str, only: str, options: tuple[str, ...]) -> None:
        """Check EXECUTOR: sandbox, local, session, docker, docker-session, or module:Class."""
        factory = KNOWN.get(executor, executor)
        if ":" not in factory:
            raise click.BadParameter(
                f"{executor!r} is neither one of {', '.join(KNOWN)} nor module:Class"
            )
        sys.exit(
            1
            if asyncio.run(
                run(Subject(factory, dict(option.split("=", 1) for option in options)), only)
            )
            else 0
        )

    conformance(prog_name="python -m cellblock.testing.conformance")


if __name__ == "__main__":
    main()
