"""`--confirm`: the user is asked before code runs."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.types import ElicitRequestParams, ElicitResult

from tests.server.mcp.mcp_client import (
    CONNECTIONS,
    STDIO,
    Connection,
    call_refused,
    connect,
    run_async,
    run_code,
)


class User:
    """Answers the questions of a server, and remembers them."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.questions, self._answers = list[str](), list(answers)

    async def __call__(self, _context: Any, question: ElicitRequestParams) -> ElicitResult:
        """Return the next answer."""
        self.questions.append(question.message)
        return self._answers.pop(0)


YES = ElicitResult(action="accept", content={"run": True})
NO = ElicitResult(action="accept", content={"run": False})
DECLINED = ElicitResult(action="decline")


@pytest.mark.parametrize("connection", CONNECTIONS, ids=str)
def test_code_runs_only_after_the_user_has_seen_and_approved_it(connection: Connection) -> None:
    async def check() -> None:
        user = User(YES, DECLINED, NO, YES)
        async with connect(connection, "--confirm", elicitation_callback=user) as client:
            assert (await run_code(client, "x = 'approved'; print(x)"))["stdout"] == "approved\n"
            assert "declined" in await call_refused(client, "run_code", code="x = 'declined'")
            assert "declined" in await call_refused(client, "run_code", code="x = 'refused'")
            assert (await run_code(client, "print(x)"))["stdout"] == "approved\n"
            assert "x = 'approved'; print(x)" in user.questions[0]
            assert len(user.questions) == 4

    run_async(check())


def test_characters_that_would_hide_code_are_shown_to_the_user() -> None:
    async def check() -> None:
        user = User(DECLINED)
        async with connect(STDIO, "--confirm", elicitation_callback=user) as client:
            code = "print(1)  # \u202egnp\x1b[2K\r#\n\tprint(2)"
            await call_refused(client, "run_code", code=code)
            assert user.questions[0].endswith("print(1)  # \ufffdgnp\ufffd[2K\ufffd#\n\tprint(2)")

    run_async(check())


def test_the_user_is_not_asked_about_code_that_cannot_run() -> None:
    async def check() -> None:
        user = User()
        async with connect(STDIO, "--confirm", elicitation_callback=user) as client:
            refused = await call_refused(client, "run_code", code="1", language="cobol")
            assert "python, sh, bash" in refused
            assert user.questions == []

    run_async(check())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_cannot_ask_its_user_runs_nothing(mode: Any) -> None:
    async def check() -> None:
        async with connect(Connection("stdio", mode), "--confirm") as client:
            assert "--confirm" in await call_refused(client, "run_code", code="1")

    run_async(check())


def test_without_the_option_the_user_is_not_asked() -> None:
    async def check() -> None:
        user = User()
        async with connect(STDIO, elicitation_callback=user) as client:
            await run_code(client, "1")
            assert user.questions == []

    run_async(check())
