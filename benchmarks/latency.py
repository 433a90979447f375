"""Measure Cellblock beside plain processes of the same interpreter, in one run: `python -m benchmarks.latency`.

Ratios of medians are what counts: the two sides of each take turns, so that what else the machine does hits both.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import callers, command, footprint, humaneval, printing, single, start

MEASURES: dict[str, command.Measure] = {
    "spaced": single.spaced,
    "back-to-back": single.back_to_back,
    "preload": single.preloaded,
    "8-callers": callers.eight,
    "cpu": single.cpu,
    "64-callers": callers.sixty_four,
    "1-gb": printing.printing,
    "idle": footprint.idle,
    "growth": footprint.growth,
    "import": start.importing,
    "start": start.starting,
    "stop": start.stopping,
    "humaneval": humaneval.humaneval,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, and print it."""
    command.run("benchmarks.latency", MEASURES, arguments, about=__doc__)


if __name__ == "__main__":
    main()
