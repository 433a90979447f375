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
