"""The NeMo-Skills door, by requests as its client sends them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .serving import Server, run_old


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


FAILING = "def half(x):\n    return x / 0\nprint('before')\nhalf(3)"


def test_an_error_is_told_in_stdout(execute: Any) -> None:
    minimal = ["before", "ZeroDivisionError: division by zero"]
    plain = [
        "before",
        "Traceback (most recent call last):",
        "    half(3)",
        "    return x / 0",
        "ZeroDivisionError: division by zero",
    ]
    for verbosity, lines in (("Minimal", minimal), ("Plain", plain)):
        done = execute(FAILING, traceback_verbosity=verbosity)
        assert (done["process_status"], done["stderr"]) == ("error", "")
        assert done["stdout"].splitlines() == lines
    done = execute("a = 1\n  b = 2")
    assert (done["process_status"], done["stderr"]) == ("error", "")
    assert done["stdout"] == "    b = 2\n    ^\nIndentationError: unexpected indent\n"


def test_longer_tracebacks_name_the_cell(execute: Any) -> None:
    context = execute(FAILING, "verbosity", traceback_verbosity="Context")["stdout"]
    assert "File <ipython-input-1>:4\n" in context
    assert "in half(x)\n      1 def half(x):\n----> 2     return x / 0\n" in context
    verbose = execute(FAILING, "verbosity", traceback_verbosity="Verbose")["stdout"]
    assert "in half(x=3)\n" in verbose
    assert execute("'a'", "verbosity", traceback_verbosity="Verbose")["stdout"] == "Out[3]: 'a'\n"


def test_the_request_decides_and_not_the_cell_before(execute: Any) -> None:
    execute("%xmode Verbose", "before")
    assert execute("1 / 0", "before")["stdout"].splitlines() == [
        "Traceback (most recent call last):",
        "    1 / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_output_of_a_cell_is_tidied(execute: Any) -> None:
    assert execute("print('\\n\\nx', end='')")["stdout"] == "x\n"
    assert execute("print('\\x1b[31mred\\x1b[0m \\n\\n')")["stdout"] == "red\n"
    table = "class Table:\n    def __repr__(self): return 'a b\\n1 2'\nprint('t')\nTable()"
    assert execute(table)["stdout"] == "t\n\na b\n1 2\n"
    assert "EOFError: EOF when reading a line" in execute("input()")["stdout"]
    assert execute("print('x' * 2000)")["stdout"] == "x" * 1000 + "<output cut>"


def test_other_doors_show_the_session_as_usual(execute: Any, client: httpx.Client) -> None:
    execute("1 / 0", "both")
    done = run_old(client, "1 / 0", "both").json()["properties"]
    assert done["stdout"] == ""
    assert "Cell In[2], line 1" in done["stderr"]


def test_a_late_cell_keeps_the_session(execute: Any) -> None:
    execute("kept = 1", "late")
    done = execute("print('begun')\nwhile True: pass", "late", timeout=1)
    assert (done["process_status"], done["stdout"]) == ("timeout", "")
    assert done["stderr"] == "Execution timed out after 1 seconds\n"
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


def test_programs_are_run_as_python_c_does(execute: Any) -> None:
    for length in (1, 200_000):
        code = f"text = '{'x' * length}'\nimport sys\nprint(len(text), __name__)\n"
        done = execute(code, None, language="python")
        assert (done["stdout"], done["stderr"]) == (f"{length} __main__\n", "")
    done = execute("print(sys.argv)", None, language="python")
    assert 'File "<string>", line 1, in <module>' in done["stderr"]


def test_refusals_have_the_form_of_a_run(execute: Any) -> None:
    for done in (execute("1", None), execute("1", timeout="soon"), execute("1", language="lean4")):
        assert done["process_status"] == "error"
        assert done["stderr"]
    assert "ipython, python, python3, pypy3, shell" in execute("1", language="lean4")["stderr"]
