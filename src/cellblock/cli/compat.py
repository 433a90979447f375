"""`cellblock compat`: what programs written for AutoGen need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..compat.check.report import CompatFinding, FileReport

_COLOURS = {"covered": "green", "differs": "yellow", "missing": "red"}


@click.group("compat")
def command() -> None:
    """Run programs that were written for AutoGen 0.2 or 0.7.

    `python -m cellblock.compat script.py` runs a script as it is.
    """


@command.command("check")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(paths: Sequence[Path], as_json: bool) -> int:
    """List what scripts, notebooks and pages use of AutoGen, and what of it Cellblock covers.

    PATHS are files, or folders to search. Nothing is run. The exit code is 1 if something is
    missing or could not be read, else 0.
    """
    from ..compat.check.report import check_file
    from ..compat.check.source_files import find_files

    reports = [check_file(path) for path in find_files(paths)]
    shown = [report for report in reports if report.uses_autogen or report.problems]
    if as_json:
        click.echo(json.dumps([_as_json(report) for report in shown], indent=2))
    else:
        for report in shown:
            for line in _report_lines(report):
                click.echo(line)
        click.echo(_summary(reports))
    return int(any(report.with_verdict("missing") or report.problems for report in shown))


def _report_lines(report: FileReport) -> Iterator[str]:
    yield click.style(str(report.path), bold=True)
    if covered := report.with_verdict("covered"):
        names = ", ".join(sorted({finding.name for finding in covered}))
        yield f"  {_label('covered')}  {names}"
    for verdict in ("differs", "missing"):
        for finding in report.with_verdict(verdict):
            yield f"  {_label(verdict)}  {_describe(finding)}"
    for problem in report.problems:
        yield f"  {click.style('unread ', fg='red')}  {problem}"


def _label(verdict: str) -> str:
    return click.style(verdict, fg=_COLOURS[verdict])


def _describe(finding: CompatFinding) -> str:
    return f"{finding.name} ({'; '.join(finding.places)}): {finding.note}"


def _summary(reports: Sequence[FileReport]) -> str:
    using = [report for report in reports if report.uses_autogen]
    missing = sum(bool(report.with_verdict("missing")) for report in using)
    differing = sum(
        bool(report.with_verdict("differs")) and not report.with_verdict("missing")
        for report in using
    )
    return (
        f"{_count(len(reports), 'file')}, {len(using)} with AutoGen: "
        f"{len(using) - differing - missing} covered, {differing} with differences, "
        f"{missing} with something missing"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _as_json(report: FileReport) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "covered": sorted({finding.name for finding in report.with_verdict("covered")}),
        "differs": [_finding_as_json(finding) for finding in report.with_verdict("differs")],
        "missing": [_finding_as_json(finding) for finding in report.with_verdict("missing")],
        "problems": report.problems,
    }


def _finding_as_json(finding: CompatFinding) -> dict[str, Any]:
    return {"name": finding.name, "note": finding.note, "places": finding.places}
