"""The NeMo-Skills door, by requests as its client sends them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .serving import Server


@pytest.fixture
def execute(server: Server, key: str) -> Any:
    """Return a function that sends code as the client does, with the key in the URL."""
    url = server.url.replace("://", f"://cellblock:{key}@")

    def send(code: str, session: str | None = "cells", **body: Any) -> dict[str, Any]:
        headers = {} if session is None else {"X-Session-ID": session}
        content = {
            "generated_code": code,
            "std_input": "",
            "timeout": 10,
            "language": "ipython",
            "max_output_characters": 1000,
            "traceback_verbosity": "Plain",
            **body,
        }
        return httpx.post(f"{url}/execute", json=content, headers=headers, timeout=60).json()

    return send


def test_cells_share_a_session(execute: Any, client: httpx.Client) -> None:
    first = execute("x = 41", "shared")
    assert (first["process_status"], first["new_session_created"]) == ("completed", True)
    second = execute("x + 1", "shared")
    assert (second["stdout"], second["new_session_created"]) == ("42\n", False)
    client.base_url = str(client.base_url).partition("/subscriptions")[0]
    assert "shared" in client.get("/sessions").json()["sessions"]
    assert client.delete("/sessions/shared").status_code == 200
    assert client.delete("/sessions/shared").status_code == 404
    assert execute("x", "shared")["process_status"] == "error"


def test_an_error_has_its_traceback(execute: Any) -> None:
    done = execute("print('before')\n1/0")
    assert (done["process_status"], done["stdout"]) == ("error", "before\n")
    assert "ZeroDivisionError" in done["stderr"]


def test_a_late_cell_keeps_the_session(execute: Any) -> None:
    execute("kept = 1", "late")
    done = execute("while True: pass", "late", timeout=1)
    assert done["process_status"] == "timeout"
    assert "timed out after 1 seconds" in done["stderr"]
    assert execute("kept", "late")["stdout"] == "1\n"


def test_programs_get_their_input(execute: Any) -> None:
    code = "print(input() + '!')"
    done = execute(code, None, language="python", std_input="hi\nmore")
    assert (done["process_status"], done["stdout"]) == ("completed", "hi!\n")
    done = execute("raise SystemExit(3)", None, language="python")
    assert done["process_status"] == "completed"
    done = execute("echo $0 out; exit 3", None, language="shell")
    assert (done["process_status"], "out" in done["stdout"]) == ("error", True)
    done = execute("while True: pass", None, language="python3", timeout=1)
    assert done["process_status"] == "timeout"


def test_long_output_is_cut(execute: Any) -> None:
    assert execute("print('x' * 2000)")["stdout"] == "x" * 1000 + "<output cut>"


def test_refusals_have_the_form_of_a_run(execute: Any) -> None:
    for done in (execute("1", None), execute("1", timeout="soon"), execute("1", language="lean4")):
        assert done["process_status"] == "error"
        assert done["stderr"]
    assert "ipython, python, python3, pypy3, shell" in execute("1", language="lean4")["stderr"]
