"""The command without running code: start-up, usage errors and the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable_reason
from tests.cli.cli_process import run_command
from tests.suite.tiers import exhaustive

# start-up and usage


@pytest.mark.parametrize(
    "arguments", exhaustive([["run", "--help"], ["--help"], ["--version"], ["run", "--nonsense"]])
)
def test_help_does_not_import_executors(arguments: list[str]) -> None:
    program = "import sys\nfrom cellblock.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
    program += "    print(*sys.modules, file=open('modules', 'w'))\n"
    subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=False)
    loaded = Path("modules").read_text().split()
    assert "cellblock.cli" in loaded
    slow = {"asyncio", "logging", "subprocess", "json", "markdown_it"}
    slow |= {"cellblock.executors", "cellblock.aio.background_loop"}
    assert slow & set(loaded) == set()


def test_version_and_help_are_printed() -> None:
    assert run_command("--version").stdout == f"cellblock {cellblock.__version__}\n"
    done = run_command()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_command("--help").stdout
    assert "doctor" in done.stdout
    assert "--no-stream" in run_command("run", "--help").stdout
    for group, command in {"compat": "check", "kernel": "install", "keys": "add"}.items():
        done = run_command(group)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"\n  {command} " in done.stdout


def test_usage_error_is_one_line(cwd: Path) -> None:
    Path("program.rb").write_text("puts 1")
    Path("prose.md").write_text("Nothing here.")
    Path("text.md").write_text("```text\nx\n```\n")
    faults: list[object] = []
    for arguments, message in USAGE_ERRORS.items():
        done = run_command(*arguments.split())
        lines = done.stderr.splitlines()
        is_told = message in done.stderr and "; see cellblock" in done.stderr
        is_one_line = len(lines) == 1 and lines[0].startswith("cellblock: ")
        if (done.returncode, done.stdout) != (2, "") or not is_told or not is_one_line:
            faults.append((arguments, done))
    assert faults == []
    assert not (cwd / "coding").exists()


USAGE_ERRORS = {
    "walk": "No such command 'walk'",
    "run": "there is nothing to run (no code blocks)",
    "run -c 1 file": "give either a FILE or -c CODE",
    "run --nonsense": "--nonsense",
    "run missing.md": "missing.md cannot be read: No such file",
    "run .": "cannot be read: Is a directory",
    "run program.rb": ".rb is not the suffix of a known language",
    "run prose.md": "there is nothing to run",
    "run text.md": "not run: 1 x text",
    "run -c 1 --memory 5X": "'5X' is not a size",
    "run -c 1 --memory 5": "5 is too small to start Python: use 8M or more",
    "run -c 1 --timeout 1e10": "1e+10 is not allowed: use at most 1e+09 seconds",
    "run -c 1 --timeout 0.5": "0.5 is not allowed: use 1 second or more",
    "run -c 1 --timeout nan": "nan is not allowed: use 1 second or more",
    "run -c 1 --timeout soon": "soon",
    "run -c 1 --language klingon": "unknown language klingon",
    "run -c 1 --executor cloud": "cloud",
    "run -c 1 --executor local --network": "--network does not apply to --executor local",
    "doctor --nonsense": "--nonsense",
    "compat check gone.py": "gone.py",
}


# doctor


@pytest.mark.depends_on_user
def test_doctor_prints_all_guarantees() -> None:
    reason = unavailable_reason()
    done = run_command("doctor")
    assert (done.returncode, done.stderr) == (1 if reason else 0, "")
    names = ["files", "network", "processes", "memory", "cpu", "disk", "kernel surface", "secrets"]
    rows = done.stdout.splitlines()
    assert [name for name, row in zip(names, rows, strict=False) if not row.startswith(name)] == []
    assert ("can be started here." in rows[-1]) == (not reason)
    found: dict[str, Any] = json.loads(run_command("doctor", "--json").stdout)
    assert found["full_sandbox"] == (not reason)
    assert [each["property"] for each in found["guarantees"]] == names
    assert set(found["guarantees"][0]) == {"property", "level", "mechanism", "advice"}


@pytest.mark.parametrize("command", exhaustive([["run", "-c", "print('ran')"], ["repl"]]))
def test_home_folder_and_root_are_refused_as_work_folder(
    command: list[str], cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "user").mkdir()
    monkeypatch.setenv("HOME", str(cwd / "user"))
    for folder, reason in (
        ("~", "your home folder. Use a separate folder for the code, or add --allow-home"),
        ("user", "your home folder."),
        ("/", "the whole machine. Use a separate folder for the code"),
        ("..", "the folders of all users."),
    ):
        done = run_command(*command, "--work-dir", folder)
        assert done.returncode == 2, done.stderr
        assert f"because {folder} is {reason}" in " ".join(done.stderr.split())
    assert list((cwd / "user").iterdir()) == []


def test_home_folder_can_be_allowed_but_nothing_above_it(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(cwd))
    arguments = ("run", "-c", "print('ran')", "--work-dir")
    assert run_command(*arguments, "~/in").stdout == "ran\n"
    assert run_command(*arguments, "~", "--allow-home").stdout == "ran\n"
    assert run_command(*arguments, "/", "--allow-home").returncode == 2
