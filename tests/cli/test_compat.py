"""`cellblock compat check`: what programs written for AutoGen need."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.cli_process import run_command

COVERED = "from autogen_agentchat.messages import TextMessage\n"
MISSING = "from autogen_agentchat.teams import GraphFlow, Swarm\n"


def test_a_covered_script_succeeds_and_is_not_run(cwd: Path) -> None:
    (cwd / "old.py").write_text(f"{COVERED}open('ran', 'w')\n")
    done = run_command("compat", "check", "old.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "old.py\n"
        "  covered  autogen_agentchat.messages.TextMessage\n"
        "1 file, 1 with AutoGen: 1 covered, 0 with differences, 0 with something missing\n"
    )
    assert not (cwd / "ran").exists()


def test_what_is_missing_or_unreadable_is_listed_per_file_and_fails(cwd: Path) -> None:
    (cwd / "scripts").mkdir()
    (cwd / "scripts" / "covered.py").write_text(COVERED)
    (cwd / "scripts" / "missing.py").write_text(MISSING)
    (cwd / "scripts" / "other.py").write_text("import os\n")
    done = run_command("compat", "check", "scripts")
    assert done.returncode == 1
    assert done.stdout.endswith(
        "scripts/missing.py\n"
        "  covered  autogen_agentchat.teams.Swarm\n"
        "  missing  autogen_agentchat.teams.GraphFlow (line 1): "
        "A team can be a participant of another team instead.\n"
        "3 files, 2 with AutoGen: 1 covered, 0 with differences, 1 with something missing\n"
    )
    assert "other.py" not in done.stdout
    (cwd / "old.ipynb").write_text("no notebook")
    done = run_command("compat", "check", "old.ipynb")
    assert done.returncode == 1
    assert "  unread   no notebook: Expecting value" in done.stdout


def test_findings_are_printed_as_json(cwd: Path) -> None:
    (cwd / "old.py").write_text(f"{MISSING}\nfrom autogen_core import EVENT_LOGGER_NAME\n")
    done = run_command("compat", "check", "--json", "old.py")
    [report] = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["path"] == "old.py"
    assert report["covered"] == ["autogen_agentchat.teams.Swarm"]
    assert [finding["name"] for finding in report["differs"]] == ["autogen_core.EVENT_LOGGER_NAME"]
    assert report["missing"] == [
        {
            "name": "autogen_agentchat.teams.GraphFlow",
            "note": "A team can be a participant of another team instead.",
            "places": ["line 1"],
        }
    ]
