"""Count memory, descriptors and files before and after many blocks: `python -m benchmarks.growth`.

Nothing may grow but memory, which settles.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command, footprint, session_footprint

MEASURES: dict[str, command.Measure] = {
    "runs": footprint.growth,
    "cells": session_footprint.growth,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    command.run(
        "benchmarks.growth",
        MEASURES,
        arguments,
        about=__doc__,
        cells="number of blocks of a session (default: 10 000)",
    )


if __name__ == "__main__":
    main()
