"""`--confirm`: the user is asked before code runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.mcp.mcp_client import CONNECTIONS, STDIO, Connection, Tools, text_of, using
from tests.suite.tiers import exhaustive


@pytest.mark.parametrize(
    "confirmed",
    exhaustive(CONNECTIONS, keep=lambda each: each in (STDIO, Connection("http", "legacy"))),
    indirect=True,
    ids=str,
)
def test_code_runs_only_after_the_user_has_seen_and_approved_it(confirmed: Tools) -> None:
    confirmed.user.answers = ["yes", "decline", "no", "yes"]
    assert confirmed.run("x = 'approved'; print(x)")["stdout"] == "approved\n"
    assert "declined" in confirmed.refusal("run_code", code="x = 'declined'")
    assert "declined" in confirmed.refusal("run_code", code="x = 'refused'")
    assert confirmed.run("print(x)")["stdout"] == "approved\n"
    assert "x = 'approved'; print(x)" in confirmed.user.questions[0]
    assert len(confirmed.user.questions) == 4


def test_a_command_runs_only_after_the_user_has_seen_and_approved_it(confirmed: Tools) -> None:
    confirmed.user.answers = ["yes", "decline", "yes"]
    result = confirmed.call("run_command", command="touch approved; ls", cwd="/mnt/data")
    assert text_of(result).startswith("approved\n")
    assert "declined" in confirmed.refusal("run_command", command="touch declined")
    assert confirmed.run("import os; print(os.listdir())")["stdout"] == "['approved']\n"
    assert "touch approved; ls" in confirmed.user.questions[0]
    assert "/mnt/data" in confirmed.user.questions[0]


def test_characters_that_would_hide_code_are_shown_to_the_user(confirmed: Tools) -> None:
    confirmed.user.answers = ["decline"]
    confirmed.refusal("run_code", code="print(1)  # \u202egnp\x1b[2K\r#\n\tprint(2)")
    shown = "print(1)  # \ufffdgnp\ufffd[2K\ufffd#\n\tprint(2)"
    assert confirmed.user.questions[0].endswith(shown)


def test_the_user_is_not_asked_about_code_that_cannot_run(confirmed: Tools) -> None:
    refused = confirmed.refusal("run_code", code="1", language="cobol")
    assert "python, sh, bash" in refused
    assert confirmed.user.questions == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_cannot_ask_its_user_runs_nothing(mode: Any) -> None:
    with using(Connection("stdio", mode), "--confirm") as tools:
        assert "--confirm" in tools.refusal("run_code", code="1")


def test_without_the_option_the_user_is_not_asked(tools: Tools) -> None:
    tools.run("1")
    assert tools.user.questions == []
