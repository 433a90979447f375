"""Measure live sessions beside `jupyter_client` and `ipykernel`, in one run: `python -m benchmarks.sessions`.

Ratios of medians are what counts: the two sides of each take turns, so that what else the machine does hits both.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command, session_copies, session_footprint, session_speed

MEASURES: dict[str, command.Measure] = {
    "start": session_speed.starting,
    "cell": session_speed.back_to_back,
    "spaced": session_speed.spaced,
    "1-gb": session_copies.copying,
    "idle": session_footprint.idle,
    "growth": session_footprint.growth,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, and print it."""
    command.run(
        "benchmarks.sessions",
        MEASURES,
        arguments,
        about=__doc__,
        sessions="how many sessions are idle (200)",
        cells="how many cells must leave nothing (10 000)",
        megabytes="how large the table is that is copied (1000)",
    )


if __name__ == "__main__":
    main()
