"""Sessions, checkpoints and forks as tools."""

from __future__ import annotations

from tests.server.mcp.mcp_client import STDIO, call, call_refused, connect, run_async, run_code


def test_sessions_have_variables_and_files_of_their_own() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await run_code(client, "x = 1; open('f', 'w').close()")
            other = await run_code(
                client, "print('x' in globals(), os := __import__('os'))", session_id="b"
            )
            assert other["is_new_session"]
            assert other["stdout"].startswith("False")
            assert (await call(client, "list_files", session_id="b"))["files"] == []
            assert (await run_code(client, "print(x)"))["stdout"] == "1\n"

    run_async(check())


def test_a_checkpoint_brings_variables_and_files_back() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await run_code(client, "x = 1; _ = open('f', 'w').write('old')")
            saved = await call(client, "checkpoint", name="before")
            assert (saved["name"], saved["checkpoints"]) == ("before", ["before"])
            await run_code(client, "x = 2; _ = open('f', 'w').write('new')")
            await call(client, "restore", name="before")
            assert (await run_code(client, "print(x, open('f').read())"))["stdout"] == "1 old\n"

            assert "another name" in await call_refused(client, "checkpoint", name="before")
            saved = await call(client, "checkpoint", name="before", replace=True)
            assert saved["checkpoints"] == ["before"]
            await call(client, "drop_checkpoint", name="before")
            assert "no checkpoint" in await call_refused(client, "restore", name="before")

    run_async(check())


def test_a_fork_is_independent_of_its_original() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await run_code(client, "x = 1; _ = open('f', 'w').write('text')")
            await call(client, "checkpoint", name="first")
            await run_code(client, "x = 2")
            assert (await call(client, "fork", new_session_id="b"))["session_id"] == "b"
            old = (await call(client, "fork", checkpoint="first"))["session_id"]
            await run_code(client, "x += 10", session_id="b")
            shown = [
                (await run_code(client, "print(x, open('f').read())", session_id=each))["stdout"]
                for each in ("default", "b", old)
            ]
            assert shown == ["2 text\n", "12 text\n", "1 text\n"]
            assert "already" in await call_refused(client, "fork", new_session_id="b")

    run_async(check())


def test_a_session_that_does_not_exist_is_not_made_by_checkpoints_and_forks() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            calls: dict[str, dict[str, str]] = {
                "checkpoint": {},
                "restore": {"name": "1"},
                "drop_checkpoint": {"name": "1"},
                "fork": {"new_session_id": "copy"},
            }
            for tool, arguments in calls.items():
                refused = await call_refused(client, tool, session_id="nosuch", **arguments)
                assert "There is no session 'nosuch'." in refused
            for session_id in ("nosuch", "copy"):
                assert (await run_code(client, "1", session_id=session_id))["is_new_session"]

    run_async(check())


def test_a_reset_makes_room_for_another_session() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            for number in range(64):
                await call(client, "list_files", session_id=str(number))
            refused = await call_refused(client, "run_code", code="1", session_id="more")
            assert "64 sessions" in refused
            assert "reset_session" in refused
            await call(client, "reset_session", session_id="0")
            await run_code(client, "1", session_id="more")

    run_async(check())


def test_a_reset_deletes_the_variables_and_on_request_keeps_the_files() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            code = "import os; print('x' in globals(), os.listdir())"
            await run_code(client, "x = 1; open('f', 'w').close()")
            await call(client, "reset_session", keep_files=True)
            assert (await run_code(client, code))["stdout"] == "False ['f']\n"
            await call(client, "reset_session")
            assert (await run_code(client, code))["stdout"] == "False []\n"
            assert (
                "no such session"
                in (await call(client, "reset_session", session_id="z"))["message"]
            )

    run_async(check())
