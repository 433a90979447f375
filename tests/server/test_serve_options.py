"""How `cellblock serve` starts, and options of it and of `cellblock keys` that are refused."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.command_server import run_command

from .serving import serving


@pytest.mark.slow
def test_the_server_says_that_it_starts_where_it_listens_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving(tmp_path, "--no-auth", is_forked=False) as server:
        starting, *notes, serving_on = server.all_lines
        assert starting == "cellblock: starting\n"
        assert re.fullmatch(r"cellblock: serving on http://127\.0\.0\.1:[1-9]\d*\n", serving_on)
        assert httpx.get(f"{server.url}/ready").status_code == 200
        for method in ("GET", "POST"):
            answer = httpx.request(method, f"{server.url}/mcp")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NotFound")
            assert "pip install 'cellblock[mcp]'" in answer.json()["error"]["message"]
    notes += [line for line in server.lines if line.startswith("cellblock: /mcp is not served")]
    assert "pip install 'cellblock[mcp]'" in notes[0]


def test_a_number_that_is_none_is_a_usage_error() -> None:
    cases = [
        ("serve", "--no-auth", option, value)
        for option in ("--timeout", "--idle", "--max-age", "--stall")
        for value in (("nan", "inf", "0") if option == "--timeout" else ("nan",))
    ]
    cases += [("keys", "add", "me", option, "nan") for option in ("--timeout", "--days")]
    cases += [("keys", "add", "me", "--cpu-seconds", "nan")]
    faults = list[object]()
    for case in cases:
        done = run_command(*case)
        begin = f"cellblock: Invalid value for '{case[-2]}'"
        if done.returncode != 2 or not re.fullmatch(f"{begin}.*\n", done.stderr):
            faults.append(done)
    assert faults == []


def test_a_missing_folder_of_the_database_is_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/misspelt/keys.db"
    for command in (["keys", "add", "me"], ["serve", "--port", "0"]):
        done = run_command(*command, "--database", url)
        assert done.returncode != 0
        assert f"The folder {tmp_path}/misspelt of the database does not exist." in done.stderr
    assert not (tmp_path / "misspelt").exists()


def test_without_ray_the_error_names_the_extra() -> None:
    done = run_command("serve", "--ray", "auto", "--no-auth", "--port", "0")
    assert done.returncode == 3, done
    assert "pip install 'cellblock[ray]'" in done.stderr, done
