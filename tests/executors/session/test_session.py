"""A live session behaves like a notebook: displays, state, input, variables, and isolation."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import resource
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    ExecutorStopped,
    Output,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionError,
    UnsupportedValue,
)
from cellblock.testing.liveness import wait_until
from tests.executors.session.live_session import (
    LiveSession,
    forked,
    meet,
    open_server,
    open_session,
    run_async,
)
from tests.sandbox.probes import MARK, local, output_of

# shown values

SHOWN_VALUES = {
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
    (
        "import argparse, sys\nargparse.ArgumentParser().parse_args(), sys.argv, sys.orig_argv[1:]"
    ): "(Namespace(), [''], [])",
    "%mkdir in\n%cd -q in\n%cd -q -\nprint(*_dh)": "/workspace /workspace/in /workspace",
}


@pytest.mark.parametrize("code", SHOWN_VALUES)
def test_a_block_shows_its_last_value(code: str, live: LiveSession) -> None:
    assert live.run_ok(code) == SHOWN_VALUES[code]


def test_earlier_blocks_and_values_have_names(live: LiveSession) -> None:
    live.run_ok("20 + 1")
    assert live.run_ok("_ * 2") == "42"
    assert live.run_ok("In[1], Out[1], _1, _i1") == "('20 + 1', 21, 21, '20 + 1')"
    assert live.run_ok("_ii") == "'_ * 2'"


def test_a_failed_block_shows_a_traceback_without_colours(live: LiveSession) -> None:
    live.run_ok("def inner(): raise ValueError('nothing fits')")
    result = live.run("def outer(): inner()\nouter()")
    assert (result.exit_code, result.outcome, result.stdout) == (1, "error", "")
    assert "ValueError: nothing fits" in result.stderr
    assert "def outer(): inner()" in result.stderr
    assert "\x1b" not in result.output


def test_a_syntax_error_in_an_imported_file_shows_no_frame_of_ours(live: LiveSession) -> None:
    (live.folder / "other.py").write_bytes(b"print('caf\xe9')")
    output = live.run("import other").output
    assert ("SyntaxError" in output, "/cellblock/" in output) == (True, False)


@pytest.mark.parametrize(
    "code", ["def f(:", "  x = 1\n y = 2", "'open", "%nothing_like_it", "return 1"]
)
def test_a_syntax_error_is_reported_and_nothing_is_lost(code: str, live: LiveSession) -> None:
    live.run_ok("x = 1")
    result = live.run(code)
    assert (result.exit_code != 0, result.session_restored, "\x1b" in result.output) == (
        True,
        False,
        False,
    ), result
    assert "Error" in result.output or "not found" in result.output
    assert live.run_ok("x") == "1"


EXITS = {
    "exit()": 0,
    "quit()": 0,
    "import sys; sys.exit(3)": 3,
    "exit(0)": 0,
    "exit(4)": 4,
    "raise SystemExit('words')": 1,
}


@pytest.mark.parametrize("code", EXITS)
def test_exit_ends_the_block_but_not_the_session(code: str, live: LiveSession) -> None:
    live.run_ok("x = 1")
    result = live.run(f"x = 2\n{code}\nx = 3")
    assert (result.exit_code, "Traceback" in result.output, result.session_restored) == (
        EXITS[code],
        False,
        False,
    )
    assert live.run_ok("x") == "2"


# input


def test_input_without_a_callback_fails_with_a_clear_error(live: LiveSession) -> None:
    result = live.run("x = 1\ninput('name? ')")
    assert (result.exit_code, result.session_restored) == (1, False)
    assert (
        "input() is not available: create the session with an input_callback to answer it"
        in result.output
    )
    assert live.run_ok("x") == "1"


def test_a_callback_answers_input(shared: SandboxSessionServer) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return f"answer {len(asked)}, ü\n"

    with open_session(shared, input_callback=answer) as live:
        code = (
            "import getpass\none, two = input('first? '), getpass.getpass('second? ')\n"
            "print([one, two])"
        )
        assert "['answer 1, ü', 'answer 2, ü']" in live.run_ok(code).replace("\\n", "")
        assert asked == ["first? ", "second? "]


def test_a_failing_callback_is_reported_and_only_ends_the_block(
    shared: SandboxSessionServer,
) -> None:
    def answer(prompt: str) -> str:
        raise LookupError("nobody is there")

    with open_session(shared, input_callback=answer) as live:
        live.run_ok("x = 1")
        with pytest.raises(LookupError, match="nobody is there"):
            live.run("input('?')")
        assert live.run_ok("x") == "1"


def test_a_coroutine_can_answer_and_the_time_limit_ends_the_wait(
    shared: SandboxSessionServer,
) -> None:
    async def answer(prompt: str) -> str:
        await asyncio.sleep(0 if prompt == "quick" else 60)
        return prompt

    with open_session(shared, timeout=1, input_callback=answer) as live:
        assert live.run_ok("input('quick')") == "'quick'"
        assert live.run("input('slow')").outcome == "timeout"
        assert live.run_ok("input('quick')") == "'quick'"


# between blocks


def test_output_of_a_thread_between_blocks_comes_with_the_next_block(live: LiveSession) -> None:
    live.run_ok("import os, threading, time\ngo = threading.Event()")
    live.run_ok(
        "def late(): go.wait(); print('late', flush=True); open('over', 'w')\n"
        "threading.Thread(target=late).start()"
    )
    live.run_ok(
        "def when_told():\n"
        "  while not os.path.exists('go'): time.sleep(0.01)\n"
        "  go.set()\n"
        "threading.Thread(target=when_told).start()"
    )
    (live.folder / "go").touch()
    run_async(wait_until((live.folder / "over").exists, "the thread prints"))
    assert live.run("1").output == "late\n1\n"


def test_blocks_of_one_call_share_state_and_stop_at_the_first_failure(live: LiveSession) -> None:
    blocks = [
        CodeBlock("x = 1", "python"),
        CodeBlock("x += 1; 1 / 0", "python"),
        CodeBlock("x = 9", "python"),
    ]
    assert run_async(live.executor.execute_code_blocks(blocks)).exit_code == 1
    assert live.run_ok("x") == "2"


# variables


@pytest.mark.parametrize(
    "value", [None, True, -3, 1.5, "ü\0\ud7ff", [1, [2]], {"a": {"b": None}}, b"", bytes(3 << 20)]
)
def test_a_value_can_be_set_and_read(value: object, live: LiveSession) -> None:
    live.set("value", value)
    assert live.get("value") == value
    assert live.run_ok("type(value).__name__") == repr(type(value).__name__)


def test_tables_can_be_set_and_read() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with open_session(None) as live:
        live.set("frame", pandas.DataFrame({"a": [1, 2], "b": ["x", None]}))
        assert live.run_ok("type(frame).__module__.split('.')[0], len(frame)") == "('pandas', 2)"
        assert live.get("frame").to_pydict() == {"a": [1, 2], "b": ["x", None]}
        live.set("table", pyarrow.table({"c": [1.5]}))
        assert live.get("table") == pyarrow.table({"c": [1.5]})
        assert {found.name: found.type for found in run_async(live.executor.variables())} == {
            "frame": "pandas.DataFrame"
            if live.run_ok("type(frame).__module__") == "'pandas'"
            else "pandas.core.frame.DataFrame",
            "table": "pyarrow.lib.Table",
        }


def test_other_values_are_refused_and_named(live: LiveSession) -> None:
    live.run_ok("import threading\nlock = threading.Lock()")
    with pytest.raises(SessionError, match="lock"):
        live.get("lock")
    with pytest.raises(KeyError):
        live.get("missing")
    with pytest.raises(UnsupportedValue, match="JSON has no object"):
        live.set("x", object())
    with pytest.raises(ValueError, match="not a valid variable name"):
        live.set("no name", 1)
    assert live.run_ok("1") == "1"


@pytest.mark.parametrize(
    ("made", "carried"),
    [
        ("numpy.arange(3)", [0, 1, 2]),
        ("numpy.float32(0.5)", 0.5),
        ("{'rows': [numpy.int64(7), numpy.ones((1, 2))]}", {"rows": [7, [[1.0, 1.0]]]}),
        ("pandas.Series([1.5, 2.5])", [1.5, 2.5]),
        ("array.array('i', [4])", [4]),
    ],
)
def test_arrays_and_series_become_lists(made: str, carried: object, live: LiveSession) -> None:
    names = ("array", "numpy", "pandas")
    modules = {name: pytest.importorskip(name) for name in names if f"{name}." in made}
    live.set("value", eval(made, modules))
    assert live.get("value") == carried


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({1, 2}, r"type set .*JSON has no set\. Pass list\(value\) instead"),
        ({"at": [datetime.datetime(2024, 1, 2)]}, r"type dict .*Pass value\.isoformat\(\)"),
        (datetime.timedelta(1), r"Pass value\.total_seconds\(\)"),
        ([b"x"], "base64"),
        ({(1, 2): 3}, "keys must be str"),
    ],
)
def test_a_value_that_cannot_be_set_says_what_to_pass(
    value: object, advice: str, live: LiveSession
) -> None:
    with pytest.raises(UnsupportedValue, match=advice):
        live.set("x", value)


def test_a_table_that_arrow_cannot_hold_is_refused(live: LiveSession) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    with pytest.raises(UnsupportedValue, match="DataFrame"):
        live.set("x", pandas.DataFrame({"a": [1, "x", object()]}))


def test_reading_a_value_runs_no_code(live: LiveSession, tmp_path: Path) -> None:
    trap = (
        f"class Trap(dict):\n    def __reduce__(self): return (open, "
        f"({str(tmp_path / 'sprung')!r}, 'w'))\ntrap = Trap(a=1)"
    )
    live.run_ok(trap)
    assert live.get("trap") == {"a": 1}
    assert not (tmp_path / "sprung").exists()


def test_variables_are_listed_with_type_and_size(live: LiveSession) -> None:
    live.run_ok(
        "import os\ndef f(): pass\nclass Odd:\n    def __repr__(self): 1 / 0\n"
        "a, odd, _hidden = [1] * 1000, Odd(), 1"
    )
    found: dict[str, Any] = {
        variable.name: variable for variable in run_async(live.executor.variables())
    }
    assert set(found) >= {"a", "odd", "f"}
    assert not {"_hidden", "In", "Out", "exit", "get_ipython"} & set(found)
    assert (found["a"].type, found["a"].size_bytes >= 8000, len(found["a"].repr) < 130) == (
        "list",
        True,
        True,
    )
    assert "ZeroDivisionError" in found["odd"].repr or "Odd" in found["odd"].repr


# other sessions

# The code that makes a change in one session, and the code that prints `mark` if it is visible.
CHANGES = {
    "variables": ("secret = 1", "'secret' in globals() and print(mark)"),
    "modules": (
        "import sys, types; sys.modules['left'] = types.ModuleType('left')",
        "import left; print(mark)",
    ),
    "changes to modules": (
        "import json; json.left = 1",
        "import json; hasattr(json, 'left') and print(mark)",
    ),
    "environment": (
        "import os; os.environ['LEFT'] = '1'",
        "import os; 'LEFT' in os.environ and print(mark)",
    ),
    "history": ("'LEFT'.lower()", "'left' in Out.values() and print(mark)"),
    "/tmp": ("open('/tmp/left', 'w').close()", "import os; os.stat('/tmp/left'); print(mark)"),
    "/dev/shm": (
        "open('/dev/shm/left', 'w').close()",
        "import os; os.stat('/dev/shm/left'); print(mark)",
    ),
    "home": (
        "import os; open(os.path.expanduser('~/left'), 'w').close()",
        "import os; os.stat(os.path.expanduser('~/left')); print(mark)",
    ),
    "work folder": ("open('left', 'w').close()", "import os; os.stat('left'); print(mark)"),
    "processes": (
        "import subprocess; p = subprocess.Popen(['sleep', '4321'])",
        (
            "import glob; any('4321' in open(f).read() for f in "
            "glob.glob('/proc/[0-9]*/cmdline')) and print(mark)"
        ),
    ),
    "shared memory": (
        "import ctypes; assert ctypes.CDLL(None).shmget(4321, 4096, 0o1666) >= 0",
        ("import ctypes; assert ctypes.CDLL(None).shmget(4321, 4096, 0) >= 0; print(mark)"),
    ),
    "local sockets": (
        "import socket; s = socket.socket(1); s.bind('\\0left'); s.listen()",
        "import socket; c = socket.socket(1); c.connect('\\0left'); print(mark)",
    ),
    "ports": (
        "import socket; s = socket.create_server(('127.0.0.1', 4321))",
        "import socket; c = socket.create_connection(('127.0.0.1', 4321), 5); print(mark)",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_session_never_sees_another_sessions_changes(
    name: str, shared: SandboxSessionServer
) -> None:
    change, probe = CHANGES[name]
    with (
        open_session(shared, keep_processes=True) as one,
        open_session(shared, keep_processes=True) as other,
    ):
        one.run_ok(change)
        for _ in range(2):
            assert MARK not in other.output_of(f"mark = {MARK!r}\n{probe}").replace(
                f"mark = {MARK!r}", ""
            )
        assert MARK in one.output_of(f"mark = {MARK!r}\n{probe}"), (
            "the check cannot detect the change"
        )


def test_code_sees_only_its_own_descriptors(live: LiveSession) -> None:
    listed = (
        "import os\nprint(sorted(number for number in map(int, "
        "os.listdir('/proc/self/fd')) if number < 500))"
    )
    assert live.run_ok(listed) == "[0, 1, 2, 3]", "3 is the folder that is being listed"


def test_fork_hooks_do_not_run_for_checkpoints(live: LiveSession) -> None:
    live.run_ok(
        "import os, threading\nseen = []\n"
        "os.register_at_fork(before=lambda: seen.append('before'), "
        "after_in_parent=lambda: seen.append('parent'),\n"
        "                    after_in_child=lambda: seen.append('child'))"
    )
    checkpoint = live.checkpoint()
    assert live.run_ok("print(seen)") == "[]"
    live.restore(checkpoint)
    assert live.run_ok("print(seen)") == "[]"
    with forked(live) as (branch,):
        assert branch.run_ok("print(seen)") == "['before', 'child']"
    assert live.run("os._exit(1)").session_restored
    assert (
        live.run_ok(
            "print(seen, threading.current_thread().native_id == threading.get_native_id())"
        )
        == "[] True"
    )


def test_code_never_sees_the_checkpoints_of_its_session(live: LiveSession) -> None:
    live.run_ok("import os")
    seen = {
        live.run_ok("print(len([name for name in os.listdir('/proc') if name.isdigit()]))")
        for _ in range(20)
    }
    assert seen == {"1"}


def test_without_a_sandbox_another_session_is_visible(tmp_path: Path) -> None:
    with local(tmp_path) as one:
        change, probe = CHANGES["/dev/shm"]
        output_of(one, change.replace("left", tmp_path.name))
        assert MARK in output_of(one, f"mark = {MARK!r}\n{probe}".replace("left", tmp_path.name))
        output_of(one, f"import os; os.unlink('/dev/shm/{tmp_path.name}')")


def test_sessions_of_one_server_run_at_the_same_time(shared: SandboxSessionServer) -> None:
    async def both() -> None:
        one, other = (SandboxSessionCodeExecutor(server=shared) for _ in range(2))
        async with one, other:
            await meet([one, other])

    asyncio.run(both())


def test_a_stopped_server_is_reported() -> None:
    with open_server() as running:
        live = open_session(running)
        live.run_ok("x = 1")
    with pytest.raises(ExecutorStopped, match="server of its session, was stopped"):
        live.run("x")
    live.stop()


def test_stopping_one_session_of_a_server_ends_its_block(shared: SandboxSessionServer) -> None:
    async def run_and_stop(one: SandboxSessionCodeExecutor) -> None:
        async for event in one.execute_stream([CodeBlock("while True: print(1)", "python")]):
            if isinstance(event, Output):
                await one.stop()

    one = SandboxSessionCodeExecutor(server=shared)
    with pytest.raises(ExecutorStopped):
        asyncio.run(run_and_stop(one))


def test_many_sessions_fit_the_soft_limit_of_descriptors_that_most_users_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 4096:
        pytest.skip(f"the hard limit of descriptors is {before[1]}: 60 sessions need more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with open_server() as server, contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(open_session(server)) for _ in range(60)]
            assert {session.run_ok("print(1)") for session in sessions} == {"1"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
