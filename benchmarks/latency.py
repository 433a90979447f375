"""Compare Cellblock with plain processes of the same interpreter: `python -m benchmarks.latency`.

Both sides take turns, so that other load affects both. Compare the ratios of medians.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import callers, command, footprint, humaneval, printing, single, start

MEASURES: dict[str, command.Measure] = {
    "spaced": single.spaced,
    "back-to-back": single.back_to_back,
    "preload": single.preloaded,
    "8-callers": callers.eight_callers,
    "cpu": single.cpu,
    "64-callers": callers.sixty_four_callers,
    "1-gb": printing.printing,
    "idle": footprint.idle,
    "growth": footprint.growth,
    "import": start.importing,
    "start": start.starting,
    "stop": start.stopping,
    "humaneval": humaneval.humaneval,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    command.run("benchmarks.latency", MEASURES, arguments, about=__doc__)


if __name__ == "__main__":
    main()
