"""The examples work as documented. Code blocks of README.md and docs/ run in tests/docs/."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cellblock.sandbox.probe import unavailable_reason
from tests.containers import docker_engine
from tests.docs.markdown_pages import matches
from tests.examples import pip_image
from tests.suite.tiers import exhaustive

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "tests" / "examples" / "output"
# Examples about agents. They share `settings.py`; `linechart.py` and `package_index.py` belong to
# the stock plot.
AGENTS = exhaustive(
    [
        "self_repair.py",
        "message_runtime.py",
        "given_code.py",
        "gpu_request.py",
        "coder_and_executor.py",
        "chat_fibonacci.py",
        pytest.param("load_data.py", marks=pytest.mark.network),  # it installs a package
    ],
    keep=2,
)


def run(argv: list[str], folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        argv, cwd=folder, env=environment, input=given, capture_output=True, text=True, check=False
    )


def test_report_creates_an_image_and_a_table(live: None, tmp_path: Path) -> None:
    report = str(ROOT / "examples/report.md")
    command = [sys.executable, "-m", "cellblock", "run", report, "--work-dir", "out", "--json"]
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    files = [tmp_path / "out" / name for name in json.loads(done.stdout)["files"]]
    pictures = [file.read_bytes() for file in files if file.suffix == ".png"]
    tables = [file.read_text().splitlines() for file in files if file.suffix == ".csv"]
    assert pictures
    assert tables
    for data in pictures:
        assert data.startswith(b"\x89PNG")
        assert len(data) > 5000, "the image is empty"
    for lines in tables:
        assert len(lines) > 2, "a table has no rows"
        assert len({line.count(",") for line in lines}) == 1, "a file is no table"


@pytest.fixture
def sandbox() -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)


@pytest.fixture
def live(sandbox: None) -> None:
    for module, extra in (("IPython", "session"), ("matplotlib", "bench"), ("pandas", "bench")):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: the extra `{extra}` brings it")


def test_eight_models_example_prints_the_best_model(live: None, tmp_path: Path) -> None:
    done = run([sys.executable, str(ROOT / "examples/eight_models.py")], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rows, best = done.stdout.splitlines()
    errors = [float(row.split(" error ")[1].split()[0]) for row in rows]
    assert first == "2000 hours, 500 of them used for testing"
    assert len(errors) == 8
    assert errors == sorted(errors)
    assert errors[0] < 12 < 50 < errors[-1], "the year's wave was not found"
    assert best == f"best: {rows[0].split('  ')[0]}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_eight_models_example_reads_a_given_file(live: None, tmp_path: Path) -> None:
    lines = [f"{hour},{hour % 24}" for hour in range(400)]
    (tmp_path / "mine.csv").write_text("\n".join(["hour,load", *lines]))
    done = run([sys.executable, str(ROOT / "examples/eight_models.py"), "mine.csv"], tmp_path)
    assert done.stdout.startswith("400 hours, 100 of them used for testing\n"), done.stderr
    assert "3 nearest hours" in done.stdout


def test_analysis_example_continues_after_a_segfault(live: None, tmp_path: Path) -> None:
    script = (ROOT / "examples/analysis.txt").read_text()
    done = run([sys.executable, "-m", "cellblock", "repl"], tmp_path, script)
    assert done.returncode == 139, done.stderr
    assert "The session was restored" in done.stderr
    assert "Traceback" not in done.stderr
    assert "still there: 365 days\n" in done.stdout
    assert "calm days: 48\n" in done.stdout
    assert (tmp_path / "coding/wind.csv").read_text().count("\n") == 366
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["1.png", "2.png"]
    assert [*(tmp_path / "coding").glob("*.png")] == []


def run_example(example: str, folder: Path, *options: str) -> str:
    """Run an example and return what it prints."""
    done = run([sys.executable, str(ROOT / "examples" / example), *options], folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def run_agents(example: str, folder: Path, *options: str) -> str:
    """Run an example about agents that leaves no files, and return what it prints."""
    output = run_example(example, folder, *options)
    assert list(folder.iterdir()) == []
    return output


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("example", AGENTS)
def test_agents_in_the_sandbox_say_what_they_said_before(example: str, tmp_path: Path) -> None:
    output = run_agents(example, tmp_path)
    assert matches(output, (OUTPUT / f"{Path(example).stem}.txt").read_text()), output


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("example", AGENTS)
def test_agents_with_docker_say_the_same(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    output = run_agents(example, tmp_path, "--docker", image)
    expected = OUTPUT / f"{Path(example).stem}_docker.txt"
    if not expected.exists():
        expected = OUTPUT / f"{Path(example).stem}.txt"
    assert matches(output, expected.read_text()), output


@pytest.mark.usefixtures("sandbox")
def test_missing_library_is_installed_at_a_persons_request_in_the_sandbox(tmp_path: Path) -> None:
    draw_stock_plot(tmp_path)


@pytest.mark.slow
@pytest.mark.engine
def test_missing_library_is_installed_at_a_persons_request_in_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pip_image.use_pip_image(monkeypatch, tmp_path / "image")
    (tmp_path / "run").mkdir()
    draw_stock_plot(tmp_path / "run", "--docker", image)


def draw_stock_plot(folder: Path, *options: str) -> None:
    output = run_example("chat_stock_plot.py", folder, *options)
    assert matches(output, (OUTPUT / "chat_stock_plot.txt").read_text()), output
    plot = ElementTree.parse(folder / "coding" / "gains.svg").getroot()
    lines = plot.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [6, 6]
