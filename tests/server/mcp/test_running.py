"""The tools `run_code` and `run_command`, over both transports and in both modes."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import CancelledError

import pytest

from tests.server.mcp.mcp_client import CONNECTIONS, STDIO, Connection, Tools, data_of, text_of
from tests.suite.tiers import exhaustive

# A red pixel.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)
SHOW_PICTURE = (
    "import base64; from IPython.display import Image, display\n"
    f"display(Image(base64.b64decode('{PNG}')))"
)
every_connection = pytest.mark.parametrize(
    "tools",
    exhaustive(CONNECTIONS, keep=lambda each: each in (STDIO, Connection("http", "legacy"))),
    indirect=True,
    ids=str,
)


@every_connection
def test_a_run_returns_text_for_the_model_and_data_for_programs(tools: Tools) -> None:
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('a b', 'w')\n41+1"
    result = tools.call("run_code", code=code)
    data = data_of(result)
    assert "out" in text_of(result)
    assert "42" in text_of(result)
    assert (data["exit_code"], data["outcome"], data["is_new_session"]) == (0, "ok", True)
    assert data["stdout"].startswith("out\n")
    assert (data["stderr"], data["files"]) == ("err\n", ["a b"])
    assert data["usage"]["wall_seconds"] > 0
    [link] = [block for block in result.content if block.type == "resource_link"]
    assert link.uri == f"sandbox://{tools.session}/a%20b"
    assert tools.read(link.uri)

    picture = tools.call("run_code", code=SHOW_PICTURE)
    [image] = [block for block in picture.content if block.type == "image"]
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data) == base64.b64decode(PNG)


@every_connection
def test_a_command_returns_text_for_the_model_and_data_for_programs(tools: Tools) -> None:
    tools.run("open('file', 'w').write('text')")
    result = tools.call("run_command", command="cat file; echo err >&2; exit 3")
    assert text_of(result) == "text\nerr\nThe exit code is 3."
    data = data_of(result)
    assert (data["stdout"], data["stderr"], data["exit_code"]) == ("text", "err\n", 3)
    late = tools.call("run_command", command="sleep 1000", timeout_seconds=0.2)
    assert "time limit" in text_of(late)
    assert tools.data("run_command", command="seq 1000000")["truncated"] is True
    assert "missing" in tools.refusal("run_command", command="true", cwd="missing")


@every_connection
def test_output_arrives_as_progress_while_the_code_runs(tools: Tools) -> None:
    heard = threading.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if message is not None and "working" in message:
            heard.set()

    # The code ends only when the file exists, and the test makes it after the progress.
    code = "print('working', flush=True)\nimport os, time\n"
    code += "while not os.path.exists('go'): time.sleep(0.02)\nprint('done')"
    run = tools.start("run_code", on_progress, code=code)
    heard.wait()
    tools.data("write_file", path="go", content="")
    assert "done" in text_of(run.result())


@every_connection
def test_cancelling_a_call_kills_the_code_and_keeps_the_session(tools: Tools) -> None:
    started = threading.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    tools.run("x = 7")
    code = (  # no interrupt ends it, at whatever moment it comes after the output
        "import fcntl, signal\nfile = open('held', 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\nprint('started', flush=True)\n"
        "while True: signal.pause()"
    )
    run = tools.start("run_code", on_progress, code=code)
    started.wait()
    run.cancel()
    with pytest.raises(CancelledError):
        run.result()
    again = tools.run("import fcntl; fcntl.flock(open('held'), fcntl.LOCK_EX); print(x)")
    assert again["stdout"] == "7\n", again


def test_a_program_that_fails_is_no_error_of_the_tool(tools: Tools) -> None:
    failed = tools.run("1/0")
    assert (failed["exit_code"], failed["outcome"]) == (1, "error")
    assert "ZeroDivisionError" in failed["stderr"]
    late = tools.run("while True: pass", timeout_seconds=0.3)
    assert (late["exit_code"], late["outcome"]) == (124, "timeout")


def test_a_session_that_its_code_ends_is_restored_and_the_model_learns_it(tools: Tools) -> None:
    tools.run("x = 1")
    died = tools.run("import os; os._exit(3)")
    assert died["exit_code"] == 3
    assert died["notice"]
    killed = tools.call("run_code", code="import os; os.kill(os.getpid(), 11)")
    assert "signal 11 (SIGSEGV)" in text_of(killed)
    assert tools.run("print(x)")["stdout"] == "1\n"


def test_unknown_and_wrong_arguments_are_named_and_nothing_runs(tools: Tools) -> None:
    refused = tools.refusal("run_code", code="x = 1", timeout=1)
    assert "no argument 'timeout'" in refused
    assert "timeout_seconds" in refused
    assert "errors.pydantic.dev" not in tools.refusal(
        "run_code", code="x = 1", timeout_seconds="soon"
    )
    assert "timeout_seconds" in tools.refusal("run_code", code="x = 1", timeout_seconds=-1)
    assert "session_id" in tools.refusal("run_code", code="x = 1", session_id="")
    assert "code" in tools.refusal("run_code")
    for language in ("html", "cobol"):
        refused = tools.refusal("run_code", code="x = 1", language=language)
        assert "python, sh, bash, pwsh, javascript" in refused
    assert tools.run("print('x' in globals())")["stdout"] == "False\n"


def test_each_tool_names_an_argument_that_it_does_not_have(tools: Tools) -> None:
    for tool in tools.portal.call(tools.client.list_tools).tools:
        assert tool.input_schema["additionalProperties"] is False
        assert tool.description is not None
        assert "\n  " not in tool.description
        assert f"{tool.name} has no argument 'no_such'" in tools.refusal(tool.name, no_such=1)


def test_other_languages_run_in_the_folder_of_the_session(tools: Tools) -> None:
    tools.run("_ = open('f', 'w').write('written')")
    assert tools.run("cat f", language="bash")["stdout"] == "written"


def test_long_output_is_cut_for_the_model(tools: Tools) -> None:
    result = tools.call("run_code", code="print('x' * 500_000)")
    assert len(text_of(result)) < 25_000
    data = data_of(result)
    assert len(data["stdout"]) < 25_000
    assert data["truncated"]
