"""Compare Cellblock with plain processes, kernels and other sandboxes: `python -m benchmarks`.

The sides of a comparison take turns, so that other load affects all. Compare the ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    callers,
    command,
    footprint,
    forks,
    humaneval,
    printing,
    session_copies,
    session_footprint,
    session_speed,
    single,
    start,
)
from benchmarks.cpu import cpu_meter
from benchmarks.figures import Figure
from benchmarks.measure import ROOT
from benchmarks.page import markdown_table, replace_table

GROUPS: dict[str, dict[str, command.Measure]] = {
    "a fresh process, beside `python file.py`": {
        "spaced": single.spaced,
        "back-to-back": single.back_to_back,
        "preload": single.preloaded,
        "cpu": single.cpu,
        "humaneval": humaneval.humaneval,
        "8-callers": callers.eight_callers,
    },
    "the same, beside 8 callers of one executor": {"64-callers": callers.sixty_four_callers},
    "short cell of a session, beside ipykernel": {
        "cell": session_speed.back_to_back,
        "spaced-cell": session_speed.spaced,
        "start-session": session_speed.starting,
        "idle-sessions": session_footprint.idle,
    },
    "branches of a session": {"fork": forks.small, "fork-pandas": forks.pandas},
    "copies of a session": {
        "copies": session_copies.small,
        "copies-files": session_copies.many_files,
        "copies-file": session_copies.large_file,
        "copies-memory": session_copies.large_memory,
    },
    "start, stop and memory": {
        "cold": start.cold,
        "import": start.importing,
        "start": start.starting,
        "stop": start.stopping,
        "idle": footprint.idle,
        "1-gb": printing.printing,
    },
}
MEASURES = {row: measure for rows in GROUPS.values() for row, measure in rows.items()}
_COUNTS = {"sessions": "number of idle sessions (default: 200)"}
_INSTALL_AND_RUN = 'scripts/install bench && exec .venv/bin/python -m benchmarks "$@"'


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    parser = command.make_parser("benchmarks", MEASURES, __doc__, {}, _COUNTS)
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the table into FILE, a page of docs/"
    )
    parser.add_argument(
        "--plain-user",
        action="store_true",
        help="as root: measure again as a plain user without control groups, from HEAD",
    )
    options = parser.parse_args(arguments)
    report = command.run_measures(MEASURES, options, {}, _COUNTS)
    users = {report["machine"]["user"]: report}
    if options.plain_user:
        report["plain user"] = users["plain user"] = _run_as_plain_user(options)
    command.write_report(report, options)
    if not options.json:
        table = _table(users)
        print(table, end="")
        if options.page is not None:
            replace_table(options.page, table)


def _run_as_plain_user(options: argparse.Namespace) -> dict[str, Any]:
    passed = [word for name in options.only or () for word in ("--only", name)]
    passed += ["--quick"] * options.quick
    passed += ["--sessions", str(options.sessions)] if options.sessions else []
    # The plain user cannot make a control group, but can read the CPU time of the one it is in.
    with cpu_meter(), tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        file = Path(folder, "report.json")
        line = [".ci/as-plain-user", "sh", "-c", _INSTALL_AND_RUN, "sh", *passed]
        done = subprocess.run([*line, "--output", str(file)], cwd=ROOT, stdout=sys.stderr)
        if done.returncode:
            return {"machine": {}, "figures": []}  # the figures of root are not lost
        return json.loads(file.read_text(encoding="utf-8"))


def _table(users: dict[str, dict[str, Any]]) -> str:
    facts = next(iter(users.values()))["machine"]
    measured = "; ".join(
        f"{name}: Python {each['machine']['python']}, load {each['machine']['load_before']}"
        for name, each in users.items()
        if each["machine"]
    )
    return (
        f"Measured on {facts['date']}: {facts['cores']} processors, Linux {facts['kernel']}\n"
        f"({measured}).\n\n"
    ) + markdown_table(
        GROUPS,
        {
            name: [Figure.from_dict(values) for values in report["figures"]]
            for name, report in users.items()
        },
    )


if __name__ == "__main__":
    main()
