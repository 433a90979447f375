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


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    return tmp_path


# start-up and usage


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["run", "--nonsense"]]
)
def test_help_does_not_import_executors(arguments: list[str]) -> None:
    program = "import sys\nfrom cellblock.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
    program += "    print(*sys.modules, file=open('modules', 'w'))\n"
    subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=False)
    loaded = Path("modules").read_text().split()
    assert "cellblock.cli" in loaded
    slow = (
        "asyncio",
        "logging",
        "subprocess",
        "json",
        "markdown_it",
        "cellblock.executors",
        "cellblock.aio.background_loop",
    )
    assert [name for name in loaded if name in slow] == []


def test_version_is_printed() -> None:
    assert run_command("--version").stdout == f"cellblock {cellblock.__version__}\n"


@pytest.mark.parametrize(
    ("group", "command"), [("compat", "check"), ("kernel", "install"), ("keys", "add")]
)
def test_a_group_without_a_command_prints_its_help(group: str, command: str) -> None:
    done = run_command(group)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"\n  {command} " in done.stdout


def test_help_lists_the_commands_and_their_options() -> None:
    assert "doctor" in run_command("--help").stdout
    assert "--no-stream" in run_command("run", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["walk"], "No such command 'walk'"),
        (["run"], "there is nothing to run (no code blocks)"),
        (["run", "-c", "1", "file"], "give either a FILE or -c CODE"),
        (["run", "--nonsense"], "--nonsense"),
        (["run", "missing.md"], "missing.md cannot be read: No such file"),
        (["run", "."], "cannot be read: Is a directory"),
        (["run", "program.rb"], ".rb is not the suffix of a known language"),
        (["run", "prose.md"], "there is nothing to run"),
        (["run", "text.md"], "not run: 1 x text"),
        (["run", "-c", "1", "--memory", "5X"], "'5X' is not a size"),
        (["run", "-c", "1", "--memory", "5"], "5 is too small to start Python: use 8M or more"),
        (
            ["run", "-c", "1", "--timeout", "1e10"],
            "1e+10 is not allowed: use at most 1e+09 seconds",
        ),
        (["run", "-c", "1", "--timeout", "0.5"], "0.5 is not allowed: use 1 second or more"),
        (["run", "-c", "1", "--timeout", "nan"], "nan is not allowed: use 1 second or more"),
        (["run", "-c", "1", "--timeout", "soon"], "soon"),
        (["run", "-c", "1", "--language", "klingon"], "unknown language klingon"),
        (["run", "-c", "1", "--executor", "cloud"], "cloud"),
        (
            ["run", "-c", "1", "--executor", "local", "--network"],
            "--network does not apply to --executor local",
        ),
        (["doctor", "--nonsense"], "--nonsense"),
    ],
)
def test_usage_error_is_one_line(arguments: list[str], message: str, cwd: Path) -> None:
    Path("program.rb").write_text("puts 1")
    Path("prose.md").write_text("Nothing here.")
    Path("text.md").write_text("```text\nx\n```\n")
    done = run_command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("cellblock: ")
    assert message in done.stderr
    assert "; see cellblock" in done.stderr
    assert not (cwd / "coding").exists()


# doctor


def test_doctor_prints_all_guarantees() -> None:
    reason = unavailable_reason()
    done = run_command("doctor")
    assert (done.returncode, done.stderr) == (1 if reason else 0, "")
    names = ["files", "network", "processes", "memory", "cpu", "disk", "kernel surface", "secrets"]
    rows = done.stdout.splitlines()
    assert [name for name, row in zip(names, rows, strict=False) if not row.startswith(name)] == []
    assert ("can be started here." in rows[-1]) == (not reason)


def test_doctor_prints_json() -> None:
    found: dict[str, Any] = json.loads(run_command("doctor", "--json").stdout)
    assert found["full_sandbox"] == (not unavailable_reason())
    assert len(found["guarantees"]) == 8
    assert set(found["guarantees"][0]) == {"property", "level", "mechanism", "advice"}


@pytest.mark.parametrize("command", [["run", "-c", "print('ran')"], ["repl"]])
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
    arguments = ("run", "-c", "print('ran')", "--allow-home", "--work-dir")
    assert run_command(*arguments, "~").stdout == "ran\n"
    assert run_command(*arguments, "/").returncode == 2


def test_folder_in_the_home_is_accepted(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(cwd))
    done = run_command("run", "-c", "print('ran')", "--work-dir", "~/in")
    assert done.stdout == "ran\n"
