"""The examples and the README's programs do what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock import extract_code_blocks
from cellblock.sandbox.probe import unavailable

ROOT = Path(__file__).parent.parent


def run(argv: list[str], folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        argv, cwd=folder, env=environment, input=given, capture_output=True, text=True, check=False
    )


def test_report_makes_a_real_picture_and_a_real_table(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: the extra `bench` brings it")
    argv = [
        sys.executable,
        "-m",
        "cellblock",
        "run",
        str(ROOT / "examples/report.md"),
        "--work-dir",
        "out",
        "--json",
    ]
    done = run(argv, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    pictures = [name for name in result["files"] if name.endswith(".png")]
    tables = [name for name in result["files"] if name.endswith(".csv")]
    assert pictures
    assert tables
    for name in pictures:
        data = (tmp_path / "out" / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 5000, "the picture is empty"
    for name in tables:
        lines = (tmp_path / "out" / name).read_text().splitlines()
        assert len(lines) > 2, f"{name} holds no rows"
        assert len({line.count(",") for line in lines}) == 1, f"{name} is no table"


@pytest.fixture
def live() -> None:
    if reason := unavailable():
        pytest.skip(reason)
    for module, extra in (("IPython", "session"), ("matplotlib", "bench"), ("pandas", "bench")):
        pytest.importorskip(
            module, reason=f"{module} is not installed: the extra `{extra}` brings it"
        )


def test_eight_models_are_tried_and_the_best_is_named(live: None, tmp_path: Path) -> None:
    done = run([sys.executable, str(ROOT / "examples/eight_models.py")], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rows, best = done.stdout.splitlines()
    errors = [float(row.split(" error ")[1].split()[0]) for row in rows]
    assert first == "2000 hours, 500 of them kept back"
    assert len(errors) == 8
    assert errors == sorted(errors)
    assert errors[0] < 12 < 50 < errors[-1], "the year's wave was not found"
    assert best == f"best: {rows[0].split('  ')[0]}"
    assert list(tmp_path.iterdir()) == []


def test_eight_models_read_a_file_of_yours(live: None, tmp_path: Path) -> None:
    lines = [f"{hour},{hour % 24}" for hour in range(400)]
    (tmp_path / "mine.csv").write_text("\n".join(["hour,load", *lines]))
    done = run([sys.executable, str(ROOT / "examples/eight_models.py"), "mine.csv"], tmp_path)
    assert done.stdout.startswith("400 hours, 100 of them kept back\n"), done.stderr
    assert "3 nearest hours" in done.stdout


def test_the_analysis_goes_on_after_its_segfault(live: None, tmp_path: Path) -> None:
    script = (ROOT / "examples/analysis.txt").read_text()
    done = run([sys.executable, "-m", "cellblock", "repl"], tmp_path, script)
    assert done.returncode == 139, done.stderr
    assert "The session was restored" in done.stderr
    assert "Traceback" not in done.stderr
    assert "still there: 365 days\n" in done.stdout
    assert "calm days: 48\n" in done.stdout
    assert (tmp_path / "coding/wind.csv").read_text().count("\n") == 366
    assert len([*(tmp_path / "coding").glob("*.png")]) == 1, (
        "the one that was drawn before the way back went with it"
    )


def readme_programs() -> list[str]:
    blocks = extract_code_blocks((ROOT / "README.md").read_text())
    return [block.code for block in blocks if block.language == "python"]


@pytest.mark.network
@pytest.mark.timeout(120)
def test_the_first_program_of_the_readme_prints_hi(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", readme_programs()[0]], tmp_path)
    assert (done.returncode, done.stdout) == (0, "0 hi\n\n"), done.stdout + done.stderr


def test_the_synchronous_program_of_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", readme_programs()[1]], tmp_path)
    assert done.returncode == 0, done.stderr
    start, end = "exit_code=0 output='Hello, World!\\n' code_file='coding/tmp_code_", ".py'\n"
    assert done.stdout.startswith(start), done.stdout
    assert done.stdout.endswith(end), done.stdout


@pytest.mark.network
@pytest.mark.timeout(120)
def test_the_third_program_of_the_readme_gives_blocks_what_it_names(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed: the extra `bench` brings it")
    data = tmp_path / "data"
    data.mkdir()
    (data / "given.txt").write_text("given")
    code = readme_programs()[2].replace('"/data"', repr(str(data)))
    code = code.replace(
        "from cellblock import", "from cellblock import CodeBlock, SandboxCommandLineCodeExecutor,"
    )
    block = "import os, numpy\nfrom functions import load_data\nprint(load_data().age.sum(), os.environ['MODE'])\n"
    block += f"print(open({str(data / 'given.txt')!r}).read())"
    code += f"""
import asyncio
async def main():
    async with executor:
        result = await executor.execute_code_blocks([CodeBlock({block!r}, "python")])
        print(result.output, end="")
asyncio.run(main())
"""
    (tmp_path / "program.py").write_text(code)  # functions need a file to be read from
    done = run([sys.executable, "program.py"], tmp_path)
    assert done.stdout == "57 test\ngiven\n", done.stdout + done.stderr


def test_the_program_about_sessions_in_the_readme_does_what_it_says(
    live: None, tmp_path: Path
) -> None:
    [code] = [program for program in readme_programs() if "SandboxSessionCodeExecutor(" in program]
    done = run([sys.executable, "-c", f"{code}\nimport asyncio\nasyncio.run(main())"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True [3, 1, 2]\n\n[1, 2, 3]\n"
