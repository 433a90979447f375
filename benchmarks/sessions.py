"""Compare live sessions with `jupyter_client` and `ipykernel`: `python -m benchmarks.sessions`.

Both sides take turns, so that other load affects both. Compare the ratios of medians.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command, session_copies, session_footprint, session_speed

MEASURES: dict[str, command.Measure] = {
    "start": session_speed.starting,
    "cell": session_speed.back_to_back,
    "spaced": session_speed.spaced,
    "1-gb": session_copies.measure_copies,
    "idle": session_footprint.idle,
    "growth": session_footprint.growth,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    command.run(
        "benchmarks.sessions",
        MEASURES,
        arguments,
        about=__doc__,
        sessions="number of idle sessions (default: 200)",
        cells="number of blocks for the growth of resources (default: 10 000)",
        megabytes="size of the table that is copied (default: 1000)",
    )


if __name__ == "__main__":
    main()
