"""Measure Cellblock beside plain processes of the same interpreter, in one run: `python -m benchmarks.latency`.

Ratios of medians are what counts: the two sides of each take turns, so that what else the machine does hits both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cellblock import CellblockError

from . import callers, footprint, humaneval, printing, single, start
from .figures import Figure, head, line, machine
from .measure import Effort, NotMeasured

MEASURES: dict[str, Callable[[Effort], list[Figure]]] = {
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
    options = _options(arguments)
    facts = machine()
    figures: list[Figure] = []
    if not options.json:
        print(head())
    for name in options.only or MEASURES:
        for figure in measured(name, Effort(quick=options.quick)):
            figures.append(figure)
            if not options.json:
                print(line(figure), flush=True)
    report = {"machine": facts, "quick": options.quick, "figures": [figure.to_dict() for figure in figures]}
    _give(report, options)


def measured(name: str, effort: Effort) -> list[Figure]:
    """Measure one row. What cannot be measured here is a figure that says so."""
    try:
        return MEASURES[name](effort)
    except (CellblockError, NotMeasured, subprocess.CalledProcessError) as error:
        return [Figure(name, note=str(error))]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there as well")
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    return parser.parse_args(arguments)


def _give(report: dict[str, Any], options: argparse.Namespace) -> None:
    text = json.dumps(report, indent=2, ensure_ascii=False)
    if options.json:
        print(text)
    else:
        print(f"\nmedians on {', '.join(f'{name} {value}' for name, value in report['machine'].items())}")
    if options.output is not None:
        options.output.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
