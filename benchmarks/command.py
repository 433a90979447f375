"""The command of a set of measurements: its options, its table and its JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, head, line, machine
from benchmarks.measure import Effort, NotMeasured
from cellblock import CellblockError

Measure = Callable[[Effort], list[Figure]]


def run(
    module: str,
    measures: Mapping[str, Measure],
    arguments: Sequence[str] | None,
    *,
    about: str | None,
    texts: Mapping[str, str] | None = None,
    **counts: str,
) -> None:
    """Measure what the command line of `module` asks for, and print it.

    `texts` and `counts`: options of its own, each with its help.
    """
    options = _parser(module, measures, about, texts or {}, counts).parse_args(arguments)
    facts = machine()
    given = vars(options)
    effort = Effort(
        options.quick,
        {name: given[name] for name in counts},
        {name: given[name] for name in texts or {}},
    )
    figures: list[Figure] = []
    if not options.json:
        print(head())
    for name in options.only or measures:
        for figure in measured(name, measures[name], effort):
            figures.append(figure)
            if not options.json:
                print(line(figure), flush=True)
    report = {
        "machine": facts,
        "quick": options.quick,
        "figures": [figure.to_dict() for figure in figures],
    }
    _give(report, options)


def measured(name: str, measure: Measure, effort: Effort) -> list[Figure]:
    """Measure one row. What cannot be measured here is a figure that says so."""
    try:
        return measure(effort)
    except (CellblockError, NotMeasured, subprocess.CalledProcessError) as error:
        return [Figure(name, note=str(error))]


def _parser(
    module: str,
    measures: Mapping[str, Measure],
    about: str | None,
    texts: Mapping[str, str],
    counts: Mapping[str, str],
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON, and nothing else"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there as well")
    parser.add_argument(
        "--only", action="append", choices=measures, metavar="NAME", help=", ".join(measures)
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    for name, meaning in texts.items():
        parser.add_argument(f"--{name}", metavar="TEXT", help=meaning)
    for name, meaning in counts.items():
        parser.add_argument(f"--{name}", type=int, metavar="COUNT", help=meaning)
    return parser


def _give(report: dict[str, Any], options: argparse.Namespace) -> None:
    text = json.dumps(report, indent=2, ensure_ascii=False)
    if options.json:
        print(text)
    else:
        print(
            f"\nmedians on {', '.join(f'{name} {value}' for name, value in report['machine'].items())}"
        )
    if options.output is not None:
        options.output.write_text(f"{text}\n", encoding="utf-8")
