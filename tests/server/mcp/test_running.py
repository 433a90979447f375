"""The tool `run_code`, over both transports and in both modes of the protocol."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable

import pytest
from mcp import Client

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

# A red pixel.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)
SHOW_PICTURE = (
    "import base64; from IPython.display import Image, display\n"
    f"display(Image(base64.b64decode('{PNG}')))"
)

every_connection = pytest.mark.parametrize("connection", CONNECTIONS, ids=str)


@every_connection
def test_a_run_returns_text_for_the_model_and_data_for_programs(connection: Connection) -> None:
    async def check() -> None:
        async with connect(connection) as client:
            code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('a b', 'w')\n41+1"
            result = await client.call_tool("run_code", {"code": code})
            data = result.structured_content
            assert "out" in text_of(result)
            assert "42" in text_of(result)
            assert data is not None
            assert (data["exit_code"], data["outcome"], data["is_new_session"]) == (0, "ok", True)
            assert data["stdout"].startswith("out\n")
            assert data["stderr"] == "err\n"
            assert data["files"] == ["a b"]
            assert data["usage"]["wall_seconds"] > 0
            links = [block for block in result.content if block.type == "resource_link"]
            assert [link.uri for link in links] == ["sandbox://default/a%20b"]
            assert (await client.read_resource(links[0].uri)).contents

            picture = await client.call_tool("run_code", {"code": SHOW_PICTURE})
            images = [block for block in picture.content if block.type == "image"]
            assert [image.mime_type for image in images] == ["image/png"]
            assert base64.b64decode(images[0].data) == base64.b64decode(PNG)

    run_async(check())


@every_connection
def test_output_arrives_as_progress_while_the_code_runs(connection: Connection) -> None:
    async def check() -> None:
        heard = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if message is not None and "working" in message:
                heard.set()

        async with connect(connection) as client:
            # The code ends only when the file exists, and the test makes it after the progress.
            code = "print('working', flush=True)\nimport os, time\n"
            code += "while not os.path.exists('go'): time.sleep(0.02)\nprint('done')"
            run = asyncio.create_task(
                client.call_tool("run_code", {"code": code}, progress_callback=on_progress)
            )
            await heard.wait()
            await client.call_tool("write_file", {"path": "go", "content": ""})
            assert "done" in text_of(await run)

    run_async(check())


@every_connection
def test_cancelling_a_call_kills_the_code_and_keeps_the_session(connection: Connection) -> None:
    async def check() -> None:
        started = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            started.set()

        async with connect(connection) as client:
            await run_code(client, "x = 7")
            code = (  # no interrupt ends it, at whatever moment it comes after the output
                "import fcntl, signal\nfile = open('held', 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
                "signal.signal(signal.SIGINT, lambda *_: None)\nprint('started', flush=True)\n"
                "while True: signal.pause()"
            )
            run = asyncio.create_task(
                client.call_tool("run_code", {"code": code}, progress_callback=on_progress)
            )
            await started.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            code = "import fcntl; fcntl.flock(open('held'), fcntl.LOCK_EX); print(x)"
            again = await run_code(client, code)
            assert again["stdout"] == "7\n", again

    run_async(check())


def test_a_program_that_fails_is_no_error_of_the_tool() -> None:
    async def check(client: Client) -> None:
        failed = await run_code(client, "1/0")
        assert (failed["exit_code"], failed["outcome"]) == (1, "error")
        assert "ZeroDivisionError" in failed["stderr"]
        late = await run_code(client, "while True: pass", timeout_seconds=1)
        assert (late["exit_code"], late["outcome"]) == (124, "timeout")

    _with_client(check)


def test_a_session_that_its_code_ends_is_restored_and_the_model_learns_it() -> None:
    async def check(client: Client) -> None:
        await run_code(client, "x = 1")
        died = await run_code(client, "import os; os._exit(3)")
        assert died["exit_code"] == 3
        assert died["notice"]
        assert (await run_code(client, "print(x)"))["stdout"] == "1\n"

    _with_client(check)


def test_unknown_arguments_are_named_and_nothing_runs() -> None:
    async def check(client: Client) -> None:
        refused = await call_refused(client, "run_code", code="x = 1", timeout=1)
        assert "no argument 'timeout'" in refused
        assert "timeout_seconds" in refused
        assert (await run_code(client, "print('x' in globals())"))["stdout"] == "False\n"
        wrong = await call_refused(client, "run_code", code="1", timeout_seconds="soon")
        assert "errors.pydantic.dev" not in wrong
        for tool in (await client.list_tools()).tools:
            assert tool.input_schema["additionalProperties"] is False
            assert tool.description is not None
            assert "\n  " not in tool.description
            refused = await call_refused(client, tool.name, **{"no_such": 1})
            assert f"{tool.name} has no argument 'no_such'" in refused

    _with_client(check)


def test_the_model_learns_which_signal_killed_the_interpreter() -> None:
    async def check(client: Client) -> None:
        code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        shown = text_of(await client.call_tool("run_code", {"code": code}))
        assert "signal 11 (SIGSEGV)" in shown

    _with_client(check)


def test_other_languages_run_in_the_folder_of_the_session() -> None:
    async def check(client: Client) -> None:
        await run_code(client, "_ = open('f', 'w').write('written')")
        shown = await run_code(client, "cat f", language="bash")
        assert shown["stdout"] == "written"

    _with_client(check)


def test_long_output_is_cut_for_the_model() -> None:
    async def check(client: Client) -> None:
        result = await client.call_tool("run_code", {"code": "print('x' * 500_000)"})
        assert len(text_of(result)) < 25_000
        assert result.structured_content is not None
        assert len(result.structured_content["stdout"]) < 25_000
        assert result.structured_content["truncated"]

    _with_client(check)


def test_wrong_arguments_are_refused_and_nothing_runs() -> None:
    async def check(client: Client) -> None:
        assert "timeout_seconds" in await call_refused(
            client, "run_code", code="1", timeout_seconds=-1
        )
        assert "session_id" in await call_refused(client, "run_code", code="1", session_id="")
        assert "code" in await call_refused(client, "run_code")
        for language in ("html", "cobol"):
            refused = await call_refused(client, "run_code", code="1", language=language)
            assert "python, sh, bash, pwsh, javascript" in refused

    _with_client(check)


def _with_client(check: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connect(STDIO) as client:
            await check(client)

    run_async(run())
