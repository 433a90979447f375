"""A live session is a notebook: what shows, what stays, what it is told; and nobody else's state is in it."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendLost,
    CodeBlock,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionError,
)
from tests.executors.session.live_session import Live, forked, server, session, wait
from tests.sandbox.probes import MARK, local, said

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    with server() as running:
        yield running


# what shows

SHOWN = {
    "6 * 7": "42",
    "x = 1": "",
    "6 * 7;": "",
    "None": "",
    "'text'": "'text'",
    "1\n2": "2",
    "for n in range(2): n": "",
    "print('before')\n'after'": "before\n'after'",
    "if True:\n    5": "",
    "[*range(3)]\n": "[0, 1, 2]",
    "import asyncio\nawait asyncio.sleep(0, 'awaited')": "'awaited'",
    "async def f(): return 3\nawait f() + 1": "4",
    "!echo from a shell": "from a shell",
    "word = 'interpolated'\n!echo {word}": "interpolated",
    "lines = !echo one; echo two\nlines[1]": "'two'",
    "%%bash\necho by magic": "by magic",
    "%%writefile made.txt\nwritten\n": "Writing made.txt",
    "%%capture caught\nprint('hidden')": "",
    "%env LEFT=set": "env: LEFT=set",
    "import sys; sys.stdout.write('no newline')": "no newline10",
    "import argparse, sys\nargparse.ArgumentParser().parse_args(), sys.argv, sys.orig_argv[1:]": "(Namespace(), [''], [])",
    "%mkdir in\n%cd -q in\n%cd -q -\nprint(*_dh)": "/workspace /workspace/in /workspace",
}


@pytest.mark.parametrize("code", SHOWN)
def test_a_cell_shows(code: str, live: Live) -> None:
    assert live.done(code) == SHOWN[code]


def test_earlier_cells_and_values_have_names(live: Live) -> None:
    live.done("20 + 1")
    assert live.done("_ * 2") == "42"
    assert live.done("In[1], Out[1], _1, _i1") == "('20 + 1', 21, 21, '20 + 1')"
    assert live.done("_ii") == "'_ * 2'"


def test_a_failed_cell_shows_a_traceback_without_colours(live: Live) -> None:
    live.done("def inner(): raise ValueError('nothing fits')")
    result = live.run("def outer(): inner()\nouter()")
    assert (result.exit_code, result.outcome, result.stdout) == (1, "error", "")
    assert "ValueError: nothing fits" in result.stderr
    assert "def outer(): inner()" in result.stderr
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    "code", ["def f(:", "  x = 1\n y = 2", "'open", "%nothing_like_it", "return 1"]
)
def test_what_cannot_be_run_is_told_and_nothing_is_lost(code: str, live: Live) -> None:
    live.done("x = 1")
    result = live.run(code)
    assert (result.exit_code != 0, result.session_restored, "\x1b" in result.output) == (
        True,
        False,
        False,
    ), result
    assert "Error" in result.output or "not found" in result.output
    assert live.done("x") == "1"


ENDS = {
    "exit()": 0,
    "quit()": 0,
    "import sys; sys.exit(3)": 3,
    "exit(0)": 0,
    "exit(4)": 4,
    "raise SystemExit('words')": 1,
}


@pytest.mark.parametrize("code", ENDS)
def test_exit_ends_the_cell_and_not_the_session(code: str, live: Live) -> None:
    live.done("x = 1")
    result = live.run(f"x = 2\n{code}\nx = 3")
    assert (result.exit_code, "Traceback" in result.output, result.session_restored) == (
        ENDS[code],
        False,
        False,
    )
    assert live.done("x") == "2"


# rich displays

MIME = {
    "text/html": ("_repr_html_", "'<b>bold</b>'", "<b>bold</b>"),
    "image/svg+xml": ("_repr_svg_", "'<svg></svg>'", "<svg></svg>"),
    "text/latex": ("_repr_latex_", "'$x^2$'", "$x^2$"),
    "text/markdown": ("_repr_markdown_", "'# title'", "# title"),
    "application/json": ("_repr_json_", "{'a': [1, None]}", {"a": [1, None]}),
    "image/png": ("_repr_png_", repr(PNG), base64.b64encode(PNG).decode()),
    "image/jpeg": ("_repr_jpeg_", repr(PNG), base64.b64encode(PNG).decode()),
    "application/vnd.plotly.v1+json": (
        "_repr_mimebundle_",
        "{'application/vnd.plotly.v1+json': {'data': [{'y': [1, 2]}]}, 'text/plain': 'a plot'}",
        {"data": [{"y": [1, 2]}]},
    ),
}


def showing(mime: str, way: str) -> str:
    method, value, _ = MIME[mime]
    arguments = "self, include=None, exclude=None" if "bundle" in method else "self"
    return f"class Rich:\n    def {method}({arguments}): return {value}\n{way}"


@pytest.mark.parametrize("way", ["Rich()", "display(Rich())"])
@pytest.mark.parametrize("mime", MIME)
def test_a_rich_value_is_displayed(mime: str, way: str, live: Live) -> None:
    result = live.run(showing(mime, way))
    assert (result.exit_code, len(result.displays)) == (0, 1), result
    shown = result.displays[0][mime]
    assert (shown.strip() if isinstance(shown, str) else shown) == MIME[mime][2]
    assert "text/plain" in result.displays[0]


@pytest.mark.parametrize(
    ("mime", "suffix"), [("text/html", "html"), ("image/svg+xml", "svg"), ("image/png", "png")]
)
def test_pictures_and_pages_are_saved(mime: str, suffix: str, live: Live) -> None:
    [file] = live.run(showing(mime, "Rich()")).output_files
    assert (file.parent, file.suffix) == (live.folder, f".{suffix}")
    wanted = MIME[mime][2]
    assert file.read_bytes() == PNG if suffix == "png" else file.read_text() == wanted


def test_displays_come_in_order_with_the_text_between(live: Live) -> None:
    result = live.run("print('one')\ndisplay('two')\nprint('three')\n'four'")
    assert result.output == "one\n'two'\nthree\n'four'\n"
    assert [display["text/plain"] for display in result.displays] == ["'two'", "'four'"]


def test_a_figure_is_collected_inline() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    with session(None) as live:
        result = live.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
        assert (result.exit_code, len(result.output_files)) == (0, 1), result
        assert result.output_files[0].read_bytes().startswith(b"\x89PNG")
        second = live.run("plt.plot([3, 1]);")
        assert len(second.output_files) == 1, second
        assert len([display for display in second.displays if "image/png" in display]) == 1
        assert live.run("print('no figure')").output_files == []


BAD_DISPLAYS = {
    "a repr that fails": "class Bad:\n    def __repr__(self): raise RuntimeError('no repr')\nBad()",
    "html that fails": "class Bad:\n    def _repr_html_(self): 1 / 0\nBad()",
    "a bundle that is no JSON": "display({'application/json': {1, 2}}, raw=True)",
    "a picture that is no base64": "display({'image/png': '???'}, raw=True)",
    "a value that is its own element": "x = []; x.append(x); display({'application/json': x}, raw=True)",
    "a bundle with odd keys": "display({3: 'x', 'text/plain': 'y'}, raw=True)",
    "lone surrogates": "display({'text/plain': '\\ud800'}, raw=True)",
    "numbers beyond JSON": "display({'application/json': float('nan')}, raw=True)",
}


@pytest.mark.parametrize("name", BAD_DISPLAYS)
def test_a_display_that_cannot_be_shown_ends_nothing(name: str, live: Live) -> None:
    live.done("kept = 1")
    result = live.run(BAD_DISPLAYS[name])
    assert not result.session_restored, result
    assert (live.done("kept"), live.run("kept").notice) == ("1", "")


# input


def test_input_fails_with_a_clear_text(live: Live) -> None:
    began = time.monotonic()
    result = live.run("x = 1\ninput('name? ')")
    assert (result.exit_code, result.session_restored) == (1, False)
    assert (
        "input() has nobody to ask: this session was made without an input_callback"
        in result.output
    )
    assert time.monotonic() - began < 5
    assert live.done("x") == "1"


def test_a_callback_answers(shared: SandboxSessionServer) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return f"answer {len(asked)}, ü\n"

    with session(shared, input_callback=answer) as live:
        code = "import getpass\none, two = input('first? '), getpass.getpass('second? ')\nprint([one, two])"
        assert "['answer 1, ü', 'answer 2, ü']" in live.done(code).replace("\\n", "")
        assert asked == ["first? ", "second? "]


def test_a_callback_that_fails_is_told_and_ends_the_block_alone(
    shared: SandboxSessionServer,
) -> None:
    def answer(prompt: str) -> str:
        raise LookupError("nobody is there")

    with session(shared, input_callback=answer) as live:
        live.done("x = 1")
        with pytest.raises(LookupError, match="nobody is there"):
            live.run("input('?')")
        assert live.done("x") == "1"


def test_a_coroutine_may_answer_and_the_time_limit_ends_the_wait(
    shared: SandboxSessionServer,
) -> None:
    import asyncio

    async def answer(prompt: str) -> str:
        await asyncio.sleep(0 if prompt == "quick" else 60)
        return prompt

    with session(shared, timeout=1, input_callback=answer) as live:
        assert live.done("input('quick')") == "'quick'"
        began = time.monotonic()
        assert live.run("input('slow')").outcome == "timeout"
        assert time.monotonic() - began < 10
        assert live.done("input('quick')") == "'quick'"


# between cells


def test_what_a_thread_prints_between_cells_comes_with_the_next(live: Live) -> None:
    live.done("import threading\ngo = threading.Event()")
    live.done(
        "def late(): go.wait(); print('late', flush=True); open('over', 'w')\nthreading.Thread(target=late).start()"
    )
    live.done("threading.Timer(0.05, go.set).start()")
    deadline = time.monotonic() + 10
    while not (live.folder / "over").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert live.run("1").output == "late\n1\n"


def test_a_cell_in_another_language_sees_the_work_folder_and_not_the_variables(live: Live) -> None:
    live.done("import os\nopen('made.txt', 'w').write('by python')\nos.environ['SECRET'] = 'x'")
    assert live.done("cat made.txt; echo; echo $SECRET; echo made > back.txt", "sh") == "by python"
    assert live.done("open('back.txt').read()") == "'made\\n'"


def test_blocks_of_one_call_share_the_state_and_stop_at_the_first_failure(live: Live) -> None:
    blocks = [
        CodeBlock("x = 1", "python"),
        CodeBlock("x += 1; 1 / 0", "python"),
        CodeBlock("x = 9", "python"),
    ]
    assert wait(live.executor.execute_code_blocks(blocks)).exit_code == 1
    assert live.done("x") == "2"


# values


@pytest.mark.parametrize(
    "value", [None, True, -3, 1.5, "ü\0\ud7ff", [1, [2]], {"a": {"b": None}}, b"", bytes(3 << 20)]
)
def test_a_value_goes_in_and_comes_out(value: object, live: Live) -> None:
    live.set("value", value)
    assert live.get("value") == value
    assert live.done("type(value).__name__") == repr(type(value).__name__)


def test_tables_go_in_and_come_out() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with session(None) as live:
        live.set("frame", pandas.DataFrame({"a": [1, 2], "b": ["x", None]}))
        assert live.done("type(frame).__module__.split('.')[0], len(frame)") == "('pandas', 2)"
        assert live.get("frame").to_pydict() == {"a": [1, 2], "b": ["x", None]}
        live.set("table", pyarrow.table({"c": [1.5]}))
        assert live.get("table") == pyarrow.table({"c": [1.5]})
        assert {found.name: found.type for found in wait(live.executor.variables())} == {
            "frame": "pandas.DataFrame"
            if live.done("type(frame).__module__") == "'pandas'"
            else "pandas.core.frame.DataFrame",
            "table": "pyarrow.lib.Table",
        }


def test_other_values_are_refused_by_name(live: Live) -> None:
    live.done("import threading\nlock = threading.Lock()")
    with pytest.raises(SessionError, match="lock"):
        live.get("lock")
    with pytest.raises(KeyError):
        live.get("missing")
    with pytest.raises(TypeError):
        live.set("x", object())
    with pytest.raises(ValueError, match="not the name"):
        live.set("no name", 1)
    assert live.done("1") == "1"


def test_nothing_that_comes_out_is_run(live: Live, tmp_path: Path) -> None:
    trap = f"class Trap(dict):\n    def __reduce__(self): return (open, ({str(tmp_path / 'sprung')!r}, 'w'))\ntrap = Trap(a=1)"
    live.done(trap)
    assert live.get("trap") == {"a": 1}
    assert not (tmp_path / "sprung").exists()


def test_variables_are_listed_with_what_they_are(live: Live) -> None:
    live.done(
        "import os\ndef f(): pass\nclass Odd:\n    def __repr__(self): 1 / 0\na, odd, _hidden = [1] * 1000, Odd(), 1"
    )
    found: dict[str, Any] = {
        variable.name: variable for variable in wait(live.executor.variables())
    }
    assert set(found) >= {"a", "odd", "f"}
    assert not {"_hidden", "In", "Out", "exit", "get_ipython"} & set(found)
    assert (found["a"].type, found["a"].size_bytes >= 8000, len(found["a"].repr) < 130) == (
        "list",
        True,
        True,
    )
    assert "ZeroDivisionError" in found["odd"].repr or "Odd" in found["odd"].repr


# others

# What one session leaves, and what prints the mark where it is seen.
OTHERS = {
    "variables": ("secret = 1", "'secret' in globals() and print(mark)"),
    "modules": ("import sys, types; sys.modules['left'] = types.ModuleType('left')", "import left; print(mark)"),
    "changes to modules": ("import json; json.left = 1", "import json; hasattr(json, 'left') and print(mark)"),
    "environment": ("import os; os.environ['LEFT'] = '1'", "import os; 'LEFT' in os.environ and print(mark)"),
    "history": ("'LEFT'.lower()", "'left' in Out.values() and print(mark)"),
    "/tmp": ("open('/tmp/left', 'w').close()", "import os; os.stat('/tmp/left'); print(mark)"),
    "/dev/shm": ("open('/dev/shm/left', 'w').close()", "import os; os.stat('/dev/shm/left'); print(mark)"),
    "home": ("import os; open(os.path.expanduser('~/left'), 'w').close()",
             "import os; os.stat(os.path.expanduser('~/left')); print(mark)"),
    "work folder": ("open('left', 'w').close()", "import os; os.stat('left'); print(mark)"),
    "processes": ("import subprocess; p = subprocess.Popen(['sleep', '4321'])",
                  "import glob; any('4321' in open(f).read() for f in glob.glob('/proc/[0-9]*/cmdline')) and print(mark)"),
    "shared memory": ("import ctypes; assert ctypes.CDLL(None).shmget(4321, 4096, 0o1666) >= 0",
                      "import ctypes; assert ctypes.CDLL(None).shmget(4321, 4096, 0) >= 0; print(mark)"),
    "local sockets": ("import socket; s = socket.socket(1); s.bind('\\0left'); s.listen()",
                      "import socket; c = socket.socket(1); c.connect('\\0left'); print(mark)"),
    "ports": ("import socket; s = socket.create_server(('127.0.0.1', 4321))",
              "import socket; c = socket.create_connection(('127.0.0.1', 4321), 5); print(mark)"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_a_session_never_sees_anothers(name: str, shared: SandboxSessionServer) -> None:
    leave, find = OTHERS[name]
    with session(shared, keep_processes=True) as one, session(shared, keep_processes=True) as other:
        one.done(leave)
        for _ in range(2):
            assert MARK not in other.said(f"mark = {MARK!r}\n{find}").replace(
                f"mark = {MARK!r}", ""
            )
        assert MARK in one.said(f"mark = {MARK!r}\n{find}"), "the probe does not work"


def test_code_finds_no_descriptors_but_its_own(live: Live) -> None:
    listed = "import os\nprint(sorted(number for number in map(int, os.listdir('/proc/self/fd')) if number < 500))"
    assert live.done(listed) == "[0, 1, 2, 3]", "3 is the folder that is being listed"


def test_what_is_to_be_done_at_forks_is_not_done_for_copies(live: Live) -> None:
    live.done(
        "import os, threading\nseen = []\n"
        "os.register_at_fork(before=lambda: seen.append('before'), after_in_parent=lambda: seen.append('parent'),\n"
        "                    after_in_child=lambda: seen.append('child'))"
    )
    mark = live.checkpoint()
    assert live.done("print(seen)") == "[]"
    live.restore(mark)
    assert live.done("print(seen)") == "[]"
    with forked(live) as (branch,):
        assert branch.done("print(seen)") == "['before', 'child']"
    assert live.run("os._exit(1)").session_restored
    assert (
        live.done("print(seen, threading.current_thread().native_id == threading.get_native_id())")
        == "[] True"
    )


def test_code_never_sees_the_copies_of_its_session(live: Live) -> None:
    live.done("import os")
    seen = {
        live.done("print(len([name for name in os.listdir('/proc') if name.isdigit()]))")
        for _ in range(100)
    }
    assert seen == {"1"}


def test_without_walls_another_session_is_seen(tmp_path: Path) -> None:
    with local(tmp_path) as one:
        leave, find = OTHERS["/dev/shm"]
        said(one, leave.replace("left", tmp_path.name))
        assert MARK in said(one, f"mark = {MARK!r}\n{find}".replace("left", tmp_path.name))
        said(one, f"import os; os.unlink('/dev/shm/{tmp_path.name}')")


def test_sessions_of_one_server_run_at_the_same_time(shared: SandboxSessionServer) -> None:
    import asyncio

    async def both() -> float:
        one, other = (SandboxSessionCodeExecutor(20, server=shared) for _ in range(2))
        async with one, other:
            began = time.monotonic()
            sleep = [CodeBlock("import time; time.sleep(1)", "python")]
            await asyncio.gather(one.execute_code_blocks(sleep), other.execute_code_blocks(sleep))
            return time.monotonic() - began

    assert asyncio.run(both()) < 1.9


def test_a_stopped_server_is_told_by_name() -> None:
    with server() as running:
        live = session(running)
        live.done("x = 1")
    with pytest.raises((BackendLost, SessionError), match="server"):
        live.run("x")
    live.stop()
