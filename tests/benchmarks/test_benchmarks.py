"""The arithmetic of the benchmarks, and their JSON reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.callers import CallCounts, run_callers
from benchmarks.command import measure_row
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
from benchmarks.processes import process_tree
from cellblock.sandbox.probe import unavailable_reason
from tests.containers import docker_engine

ROOT = Path(__file__).parents[2]


def command(*options: str, module: str = "benchmarks.latency") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    line = [sys.executable, "-m", module, *options]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)


# figures


@pytest.mark.parametrize(
    ("bound", "number", "holds"),
    [
        (Bound("at most", 0.15), 0.15, True),
        (Bound("at most", 0.15), 0.151, False),
        (Bound("at least", 3), 3, True),
        (Bound("at least", 3), 2.99, False),
    ],
)
def test_bound_includes_its_value(bound: Bound, number: float, holds: bool) -> None:
    assert bound.holds(number) is holds


def test_ratio_is_that_of_the_medians() -> None:
    figure = compare_medians(
        "m", [0.001, 0.002, 0.9], [0.010, 0.020, 0.7], Bound("at most", 0.15), unit="ms", scale=1000
    )
    assert (figure.ours, figure.theirs, figure.ratio, figure.ok) == (
        2,
        20,
        pytest.approx(0.1),
        True,
    )
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


def test_single_median_is_checked_against_its_bound() -> None:
    figure = check_median(
        "m", [2 << 20, 30 << 20, 40 << 20], Bound("at most", 25), unit="MB", scale=1 / (1 << 20)
    )
    assert (figure.ours, figure.ratio, figure.ok, figure.must_be) == (30, None, False, "≤ 25 MB")


def test_table_columns_are_aligned() -> None:
    good = format_figure(compare_medians("m", [1], [2], Bound("at most", 1), unit="ms"))
    bad = format_figure(check_median("m", [1], Bound("at least", 2)))
    assert good.endswith("  ok")
    assert bad.endswith("  NOT")
    assert table_header().index("  ok") == good.index("  ok") == bad.index("  NOT")


def test_unmeasured_figure_has_a_reason() -> None:
    assert format_figure(Figure("preload", note="pandas is not installed.")).endswith(
        "not measured\n    pandas is not installed."
    )


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


def test_quick_effort_is_smaller() -> None:
    assert (Effort().pick(10, 1), Effort(quick=True).pick(10, 1)) == (10, 1)


def test_failed_plain_process_raises() -> None:
    assert run_plain("-c", "print('hi')") == "hi\n"
    with pytest.raises(subprocess.CalledProcessError):
        run_plain("-c", "raise SystemExit(1)")


def test_results_of_another_caller_are_counted() -> None:
    def mixed_up(caller: int, code: str) -> str:
        return "0 0\n" if caller else code.removeprefix("print('").removesuffix("')") + "\n"

    found = run_callers(3, 0.01, mixed_up)
    assert found.wrong_results == sum(found.counts[1:])


def test_fairness_is_relative_to_the_median() -> None:
    found = CallCounts((1, 4, 4, 4, 12), 0, 5.0)
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


@pytest.mark.parametrize(
    ("solution", "exit_code"), [("    return x + 1\n", 0), ("    return x\n", 1)]
)
def test_wrong_solution_fails(solution: str, exit_code: int) -> None:
    problem = {
        "prompt": "def up(x):\n",
        "canonical_solution": solution,
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "up",
    }
    done = subprocess.run([sys.executable, "-c", program(problem)], capture_output=True)
    assert done.returncode == exit_code


# the command


def test_unmeasurable_row_does_not_stop_the_others() -> None:
    def missing(effort: Effort) -> list[Figure]:
        raise NotMeasured("pandas is not installed.")

    [figure] = measure_row("preload", missing, Effort(quick=True))
    assert (figure.measure, figure.ok, figure.note) == ("preload", None, "pandas is not installed.")


@pytest.mark.slow
def test_command_prints_and_writes_json(tmp_path: Path) -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    done = command(
        "--quick",
        "--json",
        "--output",
        str(tmp_path / "report.json"),
        "--only",
        "stop",
        "--only",
        "import",
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [figure["measure"] for figure in report["figures"]] == [
        "stop()",
        "import cellblock, beside import asyncio",
    ]
    assert [figure["rounds"] for figure in report["figures"]] == [3, 7]
    assert {"cores", "kernel", "python"} <= set(report["machine"])


SESSIONS = {
    "start": ["start of a session until its first answer"],
    "cell": [
        "trivial cell, back to back, automatic checkpoint on",
        "trivial cell, back to back, automatic checkpoint off",
    ],
    "spaced": ["trivial cell, 5 ms between, automatic checkpoint on"],
    "1-gb": [
        "checkpoint of a session that holds 0.008 GB",
        "fork of a session that holds 0.008 GB",
        "restore of a session that holds 0.008 GB",
        "memory of an untouched fork",
    ],
    "idle": ["2 idle sessions with numpy and pandas, PSS a session"],
}


@pytest.mark.slow
@pytest.mark.parametrize("row", SESSIONS)
def test_live_sessions_are_measured(row: str) -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    for name in ("ipykernel", "jupyter_client", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    done = command(
        "--quick",
        "--json",
        "--only",
        row,
        "--sessions",
        "2",
        "--megabytes",
        "8",
        module="benchmarks.sessions",
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)["figures"]
    assert [figure["measure"] for figure in figures] == SESSIONS[row]
    assert all(figure["ours"] > 0 for figure in figures), figures


@pytest.mark.slow
def test_growth_of_resources_is_measured() -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    done = command("--json", "--only", "growth", "--cells", "20", module="benchmarks.sessions")
    assert (done.returncode, done.stderr) == (0, "")
    figures = {figure["measure"]: figure for figure in json.loads(done.stdout)["figures"]}
    # The number of mounts is not checked: containers of tests that run in parallel change it.
    assert figures["20 cells with checkpoints: growth of processes"]["ok"]
    assert all(figure["ours_rounds"] for figure in figures.values())


CONTAINERS = {
    "hi": "print('hi') per block, started container",
    "callers": "8 callers at once",
    "start": "start(), beside docker run -d and a first exec",
    "stop": "stop(), while a shell ignores SIGTERM",
}


@pytest.mark.engine
def test_docker_blocks_are_compared_with_the_docker_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    only = [word for row in CONTAINERS for word in ("--only", row)]
    done = command("--quick", "--json", "--image", image, *only, module="benchmarks.docker")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)["figures"]
    assert [figure["measure"] for figure in figures] == list(CONTAINERS.values())
    assert all(figure["ours"] > 0 for figure in figures), figures


SERVE = {
    "run": [
        "trivial run over HTTP, beside in process",
        "trivial run over HTTP: time added by HTTP",
    ],
    "64-clients": [
        "64 clients at once, beside in process",
        "64 clients at once: results of another client",
    ],
    "load": ["10 sessions, 100 runs: requests that failed"],
    "kill-session": ["kill -9 of a session: sessions that cannot be used again"],
    "kill-server": ["kill -9 of the server: processes left"],
}


@pytest.mark.slow
@pytest.mark.parametrize("row", SERVE)
def test_the_server_is_measured(row: str) -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    for name in ("starlette", "uvicorn", "sqlalchemy", "python_multipart", "prometheus_client"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    options = ("--quick", "--json", "--sessions", "10", "--only", row)
    done = command(*options, module="benchmarks.serve")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)["figures"]
    assert all(any(title in each["measure"] for each in figures) for title in SERVE[row]), figures
    # The figures that are not of time hold on a loaded machine too.
    assert all(each["ok"] for each in figures if not each["unit"]), figures


def test_unknown_row_is_a_usage_error() -> None:
    done = command("--only", "nothing")
    assert done.returncode == 2
    assert "invalid choice: 'nothing'" in done.stderr
