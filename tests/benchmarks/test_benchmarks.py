"""The arithmetic of the benchmarks, and their JSON reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.callers import CallCounts, run_callers
from benchmarks.command import measure_row
from benchmarks.cpu import cpu_meter
from benchmarks.figures import (
    Bound,
    Figure,
    check_median,
    compare_medians,
    format_figure,
    table_header,
)
from benchmarks.humaneval import program
from benchmarks.measure import Effort, NotMeasured, interleave, run_plain, time_calls
from benchmarks.page import FIRST, LAST, markdown_table, replace_table
from benchmarks.processes import process_tree
from cellblock.sandbox.probe import unavailable_reason
from tests.containers import docker_engine

ROOT = Path(__file__).parents[2]


def command(*options: str, module: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    line = [sys.executable, "-m", module, *options]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)


def measure(*options: str, module: str, rows: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the figures of a benchmark, which prints them as JSON."""
    only = [word for row in rows for word in ("--only", row)]
    done = command("--json", *options, *only, module=module)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["figures"]


@pytest.fixture
def full_sandbox() -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")


# figures


def test_bound_includes_its_value() -> None:
    most, least = Bound("at most", 0.15), Bound("at least", 3)
    found = [most.holds(0.15), most.holds(0.151), least.holds(3), least.holds(2.99)]
    assert found == [True, False, True, False]
    sizes = [2 << 20, 30 << 20, 40 << 20]
    figure = check_median("m", sizes, Bound("at most", 25), unit="MB", scale=1 / (1 << 20))
    assert (figure.ours, figure.ratio, figure.ok, figure.must_be) == (30, None, False, "≤ 25 MB")


def test_ratio_is_that_of_the_medians() -> None:
    ours, theirs = [0.001, 0.002, 0.9], [0.010, 0.020, 0.7]
    figure = compare_medians("m", ours, theirs, Bound("at most", 0.15), unit="ms", scale=1000)
    found = (figure.ours, figure.theirs, figure.ratio, figure.ok)
    assert found == (2, 20, pytest.approx(0.1), True)
    assert figure.to_dict()["rounds"] == 3


def test_noise_is_the_spread_of_the_rounds() -> None:
    quiet, disturbed = ([value, 1.0, 1.0, 1.0, 2 - value] for value in (0.99, 0.5))
    assert compare_medians("m", quiet, [1.0] * 5, Bound("at most", 1), unit="s").noise == 0
    spread = [0.9, 0.95, 1.0, 1.05, 1.1]
    figure = compare_medians("m", spread, [1.0] * 5, Bound("at most", 1), unit="s")
    assert figure.noise == pytest.approx(1.858 * 0.05 / 5**0.5, rel=0.01)
    assert f"1.000 ± {figure.noise:.3f}" in format_figure(figure)
    # A single disturbed round does not count.
    assert compare_medians("m", disturbed, [1.0] * 5, Bound("at most", 1), unit="s").noise == 0
    assert compare_medians("m", [1.0], [1.0], Bound("at most", 1), unit="s").noise is None


def test_table_columns_are_aligned_and_an_unmeasured_figure_has_a_reason() -> None:
    good = format_figure(compare_medians("m", [1], [2], Bound("at most", 1), unit="ms"))
    bad = format_figure(check_median("m", [1], Bound("at least", 2)))
    assert good.endswith("  ok")
    assert bad.endswith("  NOT")
    assert table_header().index("  ok") == good.index("  ok") == bad.index("  NOT")
    missing = format_figure(Figure("preload", note="pandas is not installed."))
    assert missing.endswith("not measured\n    pandas is not installed.")


def test_page_shows_users_side_by_side() -> None:
    bound = Bound("at most", 0.2)
    root = [
        compare_medians("spaced", [0.002], [0.010], bound, unit="ms", scale=1000),
        check_median("fork", [0.5], Bound("at most", 0.4), unit="s"),
    ]
    plain = [
        compare_medians("spaced", [0.003], [0.010], bound, unit="ms", scale=1000),
        Figure("fork", note="no rights"),
        compare_medians("other", [1], [2], None, unit="ms"),
    ]
    users = {
        name: [replace(figure, row=figure.measure) for figure in figures]
        for name, figures in (("root", root), ("plain user", plain))
    }
    assert markdown_table({"A": ("spaced",), "B": (), "C": ("fork", "other")}, users) == (
        "|  | limit | root |  | plain user |  |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| **A** |  |  |  |  |  |\n"
        "| spaced | ≤ 0.2 × | 0.20 × (2 ms) | met | 0.30 × (3 ms) | missed |\n"
        "| **C** |  |  |  |  |  |\n"
        "| fork | ≤ 0.4 s | 0.50 s | missed | not measured |  |\n"
        "| other |  | not measured |  | 0.50 × (1 ms) |  |\n"
    )


def test_table_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{FIRST}\nold\n{LAST}\nafter\n", encoding="utf-8")
    replace_table(page, "| new |\n")
    replace_table(page, "| newer |\n")
    text = page.read_text(encoding="utf-8")
    assert text == f"before\n{FIRST}\n\n| newer |\n\n{LAST}\nafter\n"
    page.write_text("no comments\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no comments"):
        replace_table(page, "| new |\n")
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert (text.count(FIRST), text.count(LAST)) == (1, 1)


# measuring


def test_contenders_take_turns_and_the_first_round_is_discarded() -> None:
    order: list[str] = []

    def contender(name: str) -> float:
        order.append(name)
        return len(order)

    values = interleave(2, {name: lambda name=name: contender(name) for name in "ab"})
    assert order == ["a", "b"] * 3
    assert values == {"a": [3, 5], "b": [4, 6]}


def test_call_times_exclude_the_pause() -> None:
    done = threading.Event()
    found = time_calls(lambda: done.wait(0.01), 2, pause=0.5)
    assert len(found) == 2
    assert all(0.01 <= seconds < 0.5 for seconds in found)


def test_plain_processes_are_measured_and_raise_if_they_fail() -> None:
    assert run_plain("-c", "print('hi')") == "hi\n"
    with pytest.raises(subprocess.CalledProcessError):
        run_plain("-c", "raise SystemExit(1)")
    try:
        with cpu_meter() as meter:
            before = meter.seconds()
            run_plain("-c", "import time\nwhile time.process_time() < 0.2: pass")
            found = meter.seconds() - before
    except NotMeasured as error:
        pytest.skip(str(error))
    assert found >= 0.2


def test_callers_are_counted_with_the_results_of_others() -> None:
    def mixed_up(caller: int, code: str) -> str:
        return "0 0\n" if caller else code.removeprefix("print('").removesuffix("')") + "\n"

    found = run_callers(3, 0.01, mixed_up)
    assert found.wrong_results == sum(found.counts[1:])
    found = CallCounts((1, 4, 4, 4, 12), 0, 5.0)  # fairness is relative to the median
    assert (found.fewest_of_median, found.most_of_median, found.rate) == (0.25, 3, 5)


def test_process_tree_includes_descendants() -> None:
    code = "import subprocess; subprocess.run(['cat'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        found = [process.pid]
        while process.poll() is None and len(found) < 2:
            found = process_tree(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert len(found) == 2
    assert process.pid in found


def test_wrong_solution_fails() -> None:
    problem = {
        "prompt": "def up(x):\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "up",
    }
    for solution, exit_code in (("    return x + 1\n", 0), ("    return x\n", 1)):
        code = program({**problem, "canonical_solution": solution})
        done = subprocess.run([sys.executable, "-c", code], capture_output=True)
        assert done.returncode == exit_code


# the command


def test_unmeasurable_row_does_not_stop_the_others() -> None:
    def missing(effort: Effort) -> list[Figure]:
        raise NotMeasured("pandas is not installed.")

    def broken(effort: Effort) -> list[Figure]:
        raise RuntimeError("The results are wrong.")

    [figure] = measure_row("preload", missing, Effort(quick=True))
    assert (figure.measure, figure.ok, figure.note) == ("preload", None, "pandas is not installed.")
    [figure] = measure_row("spaced", broken, Effort(quick=True))
    assert (figure.ok, figure.note) == (None, "RuntimeError: The results are wrong.")


@pytest.mark.slow
@pytest.mark.usefixtures("full_sandbox")
def test_command_prints_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    options = ["--quick", "--json", "--output", str(file), "--only", "stop", "--only", "import"]
    done = command(*options)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report == json.loads(file.read_text(encoding="utf-8"))
    rounds = {figure["measure"]: figure["rounds"] for figure in report["figures"]}
    assert rounds == {"`stop()`": 3, "`import cellblock`": 7, "import of an executor": 7}
    assert {"cores", "kernel", "python"} <= set(report["machine"])


SESSIONS = {
    "start-session": ["start until the first answer"],
    "cell": ["back to back, with copies", "back to back, without copies"],
    "spaced-cell": ["5 ms between, with copies"],
    "fork": ["10 small", "10 small, first results", "sandlock, 10 small, results"]
    + ["10 small, private memory of each"],
    "copies-files": ["50 files: checkpoint", "50 files: restore", "50 files: fork(2)"],
    "copies-file": [f"a 10 MB file: {act}" for act in ("checkpoint", "restore", "fork(2)")],
    "copies-memory": [f"10 MB of memory: {act}" for act in ("checkpoint", "restore", "fork(2)")],
    "idle-sessions": ["memory of each of 2, with pandas"],
}


@pytest.mark.slow
@pytest.mark.usefixtures("full_sandbox")
@pytest.mark.parametrize("row", SESSIONS)
def test_live_sessions_are_measured(row: str) -> None:
    for name in ("ipykernel", "jupyter_client", "pandas", "sandlock"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    figures = measure("--quick", "--sessions", "2", module="benchmarks", rows=[row])
    assert [figure["measure"] for figure in figures] == SESSIONS[row]
    assert all(figure["ours"] > 0 for figure in figures), figures


@pytest.mark.slow
@pytest.mark.usefixtures("full_sandbox")
def test_growth_of_resources_is_measured() -> None:
    found = measure("--cells", "20", module="benchmarks.growth", rows=["cells"])
    figures = {figure["measure"]: figure for figure in found}
    # The number of mounts is not checked: containers of tests that run in parallel change it.
    assert figures["20 cells with checkpoints: growth of processes"]["ok"]
    assert all(figure["ours_rounds"] for figure in figures.values())


@pytest.mark.slow
@pytest.mark.usefixtures("full_sandbox")
def test_batches_are_compared_with_plain_processes() -> None:
    options, rows = ("--quick", "--runs", "30"), ("rate", "growth")
    rate, growth = measure(*options, module="benchmarks.batch", rows=rows)
    assert rate["ratio"] > 0
    assert "30 were run now: 30 programs: 30 passed" in growth["note"]


CONTAINERS = {
    "hi": "print('hi') per block, started container",
    "callers": "8 callers at once",
    "start": "start(), beside docker run -d and a first exec",
    "stop": "stop(), while a shell ignores SIGTERM",
}


@pytest.mark.slow
@pytest.mark.engine
def test_docker_blocks_are_compared_with_the_docker_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    options = ("--quick", "--image", image)
    figures = measure(*options, module="benchmarks.docker", rows=CONTAINERS)
    assert [figure["measure"] for figure in figures] == list(CONTAINERS.values())
    assert all(figure["ours"] > 0 for figure in figures), figures


BOX = [
    '`exec(["true"])`',
    '`subprocess.run(["true"])`',
    "write 1 MiB, beside a copy of a file",
    "read 1 MiB, beside a copy of a file",
]


@pytest.mark.slow
def test_a_box_is_compared_with_plain_processes_and_files() -> None:
    figures = measure("--quick", module="benchmarks.box", rows=["exec", "files"])
    assert [figure["measure"] for figure in figures] == BOX
    assert all(figure["ours"] > 0 for figure in figures), figures


SERVE = {
    "run": [
        "trivial run over HTTP, beside in process",
        "trivial run over HTTP: time added by HTTP",
    ],
    "64-clients": ["8 clients at once, beside in process", "8 clients at once: results of another"],
    "load": ["10 sessions, 100 runs: requests that failed"],
    "kill-session": ["kill -9 of a session: sessions that cannot be used again"],
    "kill-server": ["kill -9 of the server: processes left"],
}


@pytest.mark.slow
@pytest.mark.usefixtures("full_sandbox")
@pytest.mark.parametrize("row", SERVE)
def test_the_server_is_measured(row: str) -> None:
    for name in ("starlette", "uvicorn", "sqlalchemy", "python_multipart", "prometheus_client"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    figures = measure("--quick", "--sessions", "10", module="benchmarks.serve", rows=[row])
    assert all(any(title in each["measure"] for each in figures) for title in SERVE[row]), figures
    # The figures that are not of time hold on a loaded machine too.
    assert all(each["ok"] for each in figures if not each["unit"]), figures


@pytest.mark.slow
def test_a_row_is_measured_and_an_unknown_one_is_a_usage_error() -> None:
    figures = measure("--quick", module="benchmarks", rows=["import"])
    assert [figure["rounds"] for figure in figures] == [7, 7]
    done = command("--only", "nothing")
    assert done.returncode == 2
    assert "invalid choice: 'nothing'" in done.stderr
