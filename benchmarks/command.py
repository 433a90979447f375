"""The command line of a set of benchmarks: options, table and JSON report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, format_figure, machine_info, table_header
from benchmarks.measure import Effort, NotMeasured

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
    """Run the benchmarks that the command line of `module` asks for, and print the figures.

    `texts` and `counts` are additional options of the module, with their help texts.
    """
    parser = make_parser(module, measures, about, texts or {}, counts)
    options = parser.parse_args(arguments)
    write_report(run_measures(measures, options, texts or {}, counts), options)


def run_measures(
    measures: Mapping[str, Measure],
    options: argparse.Namespace,
    texts: Mapping[str, str],
    counts: Mapping[str, str],
) -> dict[str, Any]:
    """Run the benchmarks that `options` ask for, print each figure, and return the report."""
    facts = machine_info()
    given = vars(options)
    effort = Effort(
        options.quick,
        {name: given[name] for name in counts},
        {name: given[name] for name in texts},
    )
    figures: list[Figure] = []
    if not options.json:
        print(table_header())
    for name in options.only or measures:
        for figure in measure_row(name, measures[name], effort):
            figures.append(figure)
            if not options.json:
                print(format_figure(figure), flush=True)
    return {
        "machine": facts,
        "quick": options.quick,
        "figures": [figure.to_dict() for figure in figures],
    }


def measure_row(name: str, measure: Measure, effort: Effort) -> list[Figure]:
    """Measure one row. If it cannot be measured here, return a figure with the reason."""
    try:
        figures = measure(effort)
    except NotMeasured as error:
        figures = [Figure(name, note=str(error))]
    except Exception as error:  # a broken row must not cost the figures of the others
        figures = [Figure(name, note=f"{type(error).__name__}: {error}")]
    return [replace(figure, row=name) for figure in figures]


def make_parser(
    module: str,
    measures: Mapping[str, Measure],
    about: str | None,
    texts: Mapping[str, str],
    counts: Mapping[str, str],
) -> argparse.ArgumentParser:
    """Return the parser of the options that each set of benchmarks has."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--json", action="store_true", help="print only the result, as JSON")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the JSON to FILE")
    parser.add_argument(
        "--only", action="append", choices=measures, metavar="NAME", help=", ".join(measures)
    )
    parser.add_argument("--quick", action="store_true", help="run only a few rounds, as a test")
    for name, meaning in texts.items():
        parser.add_argument(f"--{name}", metavar="TEXT", help=meaning)
    for name, meaning in counts.items():
        parser.add_argument(f"--{name}", type=int, metavar="COUNT", help=meaning)
    return parser


def write_report(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the report, or the machine if the figures were printed; write the file of `options`."""
    text = json.dumps(report, indent=2, ensure_ascii=False)
    if options.json:
        print(text)
    else:
        facts = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
        print(f"\nmedians on {facts}")
    if options.output is not None:
        options.output.write_text(f"{text}\n", encoding="utf-8")
