"""Sessions, checkpoints and forks as tools."""

from __future__ import annotations

from typing import Any

from tests.server.mcp.mcp_client import STDIO, Tools, using


def test_sessions_have_variables_and_files_of_their_own(tools: Tools) -> None:
    tools.run("x = 1; open('f', 'w').close()")
    other = tools.run("print('x' in globals())", session_id="b")
    assert (other["is_new_session"], other["stdout"]) == (True, "False\n")
    assert tools.data("list_files", session_id="b")["files"] == []
    assert tools.run("print(x)")["stdout"] == "1\n"


def test_a_checkpoint_brings_variables_and_files_back(tools: Tools) -> None:
    tools.run("x = 1; _ = open('f', 'w').write('old')")
    saved = tools.data("checkpoint", name="before")
    assert (saved["name"], saved["checkpoints"]) == ("before", ["before"])
    tools.run("x = 2; _ = open('f', 'w').write('new')")
    tools.data("restore", name="before")
    assert tools.run("print(x, open('f').read())")["stdout"] == "1 old\n"

    assert "another name" in tools.refusal("checkpoint", name="before")
    saved = tools.data("checkpoint", name="before", replace=True)
    assert saved["checkpoints"] == ["before"]
    tools.data("drop_checkpoint", name="before")
    assert "no checkpoint" in tools.refusal("restore", name="before")


def test_a_fork_is_independent_of_its_original(tools: Tools) -> None:
    tools.run("x = 1; _ = open('f', 'w').write('text')")
    tools.data("checkpoint", name="first")
    tools.run("x = 2")
    assert tools.data("fork", new_session_id="b")["session_id"] == "b"
    old = tools.data("fork", checkpoint="first")["session_id"]
    tools.run("x += 10", session_id="b")
    shown = [
        tools.run("print(x, open('f').read())", session_id=each)["stdout"]
        for each in (tools.session, "b", old)
    ]
    assert shown == ["2 text\n", "12 text\n", "1 text\n"]
    assert "already" in tools.refusal("fork", new_session_id="b")


def test_a_session_that_does_not_exist_is_not_made_by_checkpoints_and_forks(tools: Tools) -> None:
    calls: dict[str, dict[str, Any]] = {
        "checkpoint": {},
        "restore": {"name": "1"},
        "drop_checkpoint": {"name": "1"},
        "fork": {"new_session_id": "copy"},
    }
    for tool, arguments in calls.items():
        refused = tools.refusal(tool, session_id="nosuch", **arguments)
        assert "There is no session 'nosuch'." in refused
    for session_id in ("nosuch", "copy"):
        assert tools.run("1", session_id=session_id)["is_new_session"]


def test_a_reset_makes_room_for_another_session() -> None:
    with using(STDIO) as tools:
        for number in range(64):
            tools.data("list_files", session_id=str(number))
        refused = tools.refusal("run_code", code="1", session_id="more")
        assert "64 sessions" in refused
        assert "reset_session" in refused
        tools.data("reset_session", session_id="0")
        tools.run("1", session_id="more")


def test_a_reset_deletes_the_variables_and_on_request_keeps_the_files(tools: Tools) -> None:
    code = "import os; print('x' in globals(), os.listdir())"
    tools.run("x = 1; open('f', 'w').close()")
    tools.data("reset_session", keep_files=True)
    assert tools.run(code)["stdout"] == "False ['f']\n"
    tools.data("reset_session")
    assert tools.run(code)["stdout"] == "False []\n"
    assert "no such session" in tools.data("reset_session", session_id="z")["message"]
