"""The tool `run_command`."""

from __future__ import annotations

import pytest

from tests.server.mcp.mcp_client import (
    CONNECTIONS,
    STDIO,
    Connection,
    call_refused,
    connect,
    run_async,
    run_code,
    text_of,
)
from tests.server.mcp.test_confirmation import DECLINED, YES, User


@pytest.mark.parametrize("connection", CONNECTIONS, ids=str)
def test_a_command_returns_text_for_the_model_and_data_for_programs(
    connection: Connection,
) -> None:
    async def check() -> None:
        async with connect(connection) as client:
            await run_code(client, "open('file', 'w').write('text')")
            command = {"command": "cat file; echo err >&2; exit 3"}
            result = await client.call_tool("run_command", command)
            assert not result.is_error
            assert text_of(result) == "text\nerr\nThe exit code is 3."
            data = result.structured_content
            assert data is not None
            assert (data["stdout"], data["stderr"], data["exit_code"]) == ("text", "err\n", 3)
            late = {"command": "sleep 1000", "timeout_seconds": 0.2}
            result = await client.call_tool("run_command", late)
            assert "time limit" in text_of(result)
            long = await client.call_tool("run_command", {"command": "seq 1000000"})
            assert long.structured_content is not None
            assert long.structured_content["truncated"] is True
            refused = await call_refused(client, "run_command", command="true", cwd="missing")
            assert "missing" in refused

    run_async(check())


def test_a_command_runs_only_after_the_user_has_seen_and_approved_it() -> None:
    async def check() -> None:
        user = User(YES, DECLINED, YES)
        async with connect(STDIO, "--confirm", elicitation_callback=user) as client:
            arguments = {"command": "touch approved; ls", "cwd": "/mnt/data"}
            result = await client.call_tool("run_command", arguments)
            assert text_of(result).startswith("approved\n")
            refused = await call_refused(client, "run_command", command="touch declined")
            assert "declined" in refused
            assert (await run_code(client, "import os; print(os.listdir())"))["stdout"] == (
                "['approved']\n"
            )
            assert "touch approved; ls" in user.questions[0]
            assert "/mnt/data" in user.questions[0]

    run_async(check())
