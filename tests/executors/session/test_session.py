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
    CancellationToken,
    CodeBlock,
    Event,
    ExecutorStopped,
    Output,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionError,
    Started,
    UnsupportedValue,
    fold,
)
from cellblock.executors.run_options import RunOptions
from cellblock.executors.session.settings import InputPrompt
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


def test_a_block_shows_its_last_value(live: LiveSession) -> None:
    shown = {code: live.run(code) for code in SHOWN_VALUES}
    assert {result.outcome for result in shown.values()} == {"ok"}, shown
    assert {code: result.output.strip() for code, result in shown.items()} == SHOWN_VALUES


def test_earlier_blocks_and_values_have_names(live: LiveSession) -> None:
    live.run_ok("20 + 1")
    assert live.run_ok("_ * 2") == "42"
    assert live.run_ok("In[1], Out[1], _1, _i1") == "('20 + 1', 21, 21, '20 + 1')"
    assert live.run_ok("_ii") == "'_ * 2'"


def test_a_syntax_error_in_an_imported_file_shows_no_frame_of_ours(live: LiveSession) -> None:
    (live.folder / "other.py").write_bytes(b"print('caf\xe9')")
    output = live.run("import other").output
    assert ("SyntaxError" in output, "/cellblock/" in output) == (True, False)


def test_a_syntax_error_is_reported_and_nothing_is_lost(live: LiveSession) -> None:
    live.run_ok("x = 1")
    for code in ("def f(:", "  x = 1\n y = 2", "'open", "%nothing_like_it", "return 1"):
        result = live.run(code)
        assert result.exit_code != 0, code
        assert not result.session_restored, code
        assert "\x1b" not in result.output, code
        assert "Error" in result.output or "not found" in result.output, code
        assert live.run_ok("x") == "1", code


EXITS = {
    "exit()": 0,
    "quit()": 0,
    "import sys; sys.exit(3)": 3,
    "exit(0)": 0,
    "exit(4)": 4,
    "raise SystemExit('words')": 1,
}


def test_exit_ends_the_block_but_not_the_session(live: LiveSession) -> None:
    for code, exit_code in EXITS.items():
        live.run_ok("x = 1")
        result = live.run(f"x = 2\n{code}\nx = 3")
        shown = (result.exit_code, "Traceback" in result.output, result.session_restored)
        assert shown == (exit_code, False, False), code
        assert live.run_ok("x") == "2", code


# input


def test_a_callback_answers_input_and_learns_what_is_hidden(shared: SandboxSessionServer) -> None:
    def answer(prompt: InputPrompt) -> str:
        return f"answer to {prompt}{prompt.hidden}, ü"

    with open_session(shared, input_callback=answer) as live:
        code = "import getpass\ninput('a '), getpass.getpass('b ')"
        assert live.run_ok(code) == "('answer to a False, ü', 'answer to b True, ü')"


def test_a_failing_callback_only_ends_the_block(shared: SandboxSessionServer) -> None:
    def answer(prompt: str) -> str:
        raise LookupError("nobody is there")

    with open_session(shared, input_callback=answer) as live:
        live.run_ok("x = 1")
        with pytest.raises(LookupError, match="nobody is there"):
            live.run("input('?')")
        assert live.run_ok("x") == "1"


def test_a_coroutine_answers_until_the_time_limit(shared: SandboxSessionServer) -> None:
    async def answer(prompt: str) -> str:
        await asyncio.sleep(0 if prompt == "quick" else 60)
        return prompt

    with open_session(shared, timeout=1, input_callback=answer) as live:
        assert live.run_ok("input('quick')") == "'quick'"
        assert live.run("input('slow')").outcome == "timeout"
        assert live.run_ok("input('quick')") == "'quick'"


def test_a_callback_learns_how_much_happened_before_it(shared: SandboxSessionServer) -> None:
    counts, codes = (
        list[int](),
        (
            "print('a', end=''); input()",  # one write, and so one event
            "print('b', end=''); display('c'); input()",
        ),
    )

    def answer(prompt: InputPrompt) -> str:
        counts.append(prompt.event_count)
        return ""

    async def read(live: LiveSession) -> list[int]:
        done = list[int]()
        for code in codes:
            events = [
                each async for each in live.executor.execute_stream([CodeBlock(code, "python")])
            ]
            is_last = [isinstance(each, Output) and "''" in each.text for each in events]
            done.append(is_last.index(True) - 1)  # without Started; the value of input() comes next
        return done

    with open_session(shared, input_callback=answer) as live:
        assert run_async(read(live)) == counts
        assert counts[0] == 1 < counts[1]


def test_the_time_limit_does_not_run_while_a_person_is_asked(
    shared: SandboxSessionServer,
) -> None:
    async def answer(_prompt: InputPrompt) -> str:
        await asyncio.sleep(1.2)  # longer than the limit
        return "an answer"

    with open_session(shared, timeout=1, input_callback=answer) as live:
        live.executor.default_options = RunOptions(input_is_timed=False)
        assert live.run_ok("input()") == "'an answer'"
        result = live.run("input(); print('goes on', flush=True)\nwhile True: pass")
        assert (result.outcome, result.limit) == ("timeout", "wall_seconds")
        assert "goes on" in result.output


def test_errors_of_input_show_only_frames_of_the_code(live: LiveSession) -> None:
    output = live.run("def ask():\n    return input('name? ')\nask()").output
    assert "return input('name? ')" in output
    assert "input() is not available: create the session with an input_callback" in output
    assert "EOFError" in output
    assert "_ask_input" not in output
    assert "cellblock/runtime" not in output


# completion

COMPLETIONS = [
    ("numbers.rev", 8, ["reverse"]),
    ("table['pri", 7, ["price"]),
    ("open('data", 6, ["data.csv"]),
    ("print(numb", 6, ["numbers"]),
    ("no_such_name.x", 14, list[str]()),
]


def test_code_can_be_completed(live: LiveSession) -> None:
    live.run_ok("numbers, table = [1], {'price': 2}; open('data.csv', 'w').close()")
    for code, start, matches in COMPLETIONS:
        assert run_async(live.executor.complete(code)) == (start, matches)
        inside = f"x = 1\n{code}\ny = 2"
        assert run_async(live.executor.complete(inside, 6 + len(code))) == (start + 6, matches)


@pytest.mark.slow  # jedi reads the stubs of the standard library
def test_code_that_has_not_run_completes_what_follows_it(live: LiveSession) -> None:
    for code, match in {
        "import os\nos.path.jo": "join",
        "import collections as c; d = c.OrderedDict(); d.move": "move_to_end",
        "def area(radius):\n    return rad": "radius",
        "for item in [1]:\n    it": "item",
    }.items():
        start, matches = run_async(live.executor.complete(f"{code} + 1", len(code)))
        assert match in matches, (code, matches)
        assert match.startswith(code[start:])


# the terminal


def test_output_is_as_wide_as_the_terminal_unless_a_block_says_otherwise(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as live:
        live.executor.default_options = RunOptions(columns=120)
        live.run_ok("import numpy")
        live.executor.default_options = RunOptions(columns=160)
        live.run_ok("import pandas")
        shown = ["list(range(35))", "numpy.arange(36)", "pandas.DataFrame([[1 / 3] * 13])"]
        lines = {code: live.run_ok(code).splitlines() for code in shown}
        assert {code: len(lines[code]) for code in shown} == dict(
            zip(shown, (1, 1, 2), strict=True)
        )
        assert live.run_ok("import shutil; shutil.get_terminal_size().columns") == "160"
        live.run_ok("numpy.set_printoptions(linewidth=50); pandas.set_option('display.width', 60)")
        live.executor.default_options = RunOptions(columns=100)
        assert len(live.run_ok("numpy.arange(40)").splitlines()) == 4
        assert live.run_ok("pandas.get_option('display.width')") == "60"


# variables


VALUES = [None, True, -3, 1.5, "ü\0\ud7ff", [1, [2]], {"a": {"b": None}}, b"", bytes(3 << 20)]


def test_a_value_can_be_set_and_read(live: LiveSession) -> None:
    for value in VALUES:
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
        types = {found.name: found.type for found in run_async(live.executor.variables())}
        assert types["table"] == "pyarrow.lib.Table"
        assert types["frame"] in ("pandas.DataFrame", "pandas.core.frame.DataFrame")


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


LISTS = {
    "numpy.arange(3)": [0, 1, 2],
    "numpy.float32(0.5)": 0.5,
    "{'rows': [numpy.int64(7), numpy.ones((1, 2))]}": {"rows": [7, [[1.0, 1.0]]]},
    "pandas.Series([1.5, 2.5])": [1.5, 2.5],
    "array.array('i', [4])": [4],
}


def test_arrays_and_series_become_lists(live: LiveSession) -> None:
    modules = {name: pytest.importorskip(name) for name in ("array", "numpy", "pandas")}
    carried = dict[str, object]()
    for made in LISTS:
        live.set("value", eval(made, modules))
        carried[made] = live.get("value")
    assert carried == LISTS


ADVICE: list[tuple[object, str]] = [
    ({1, 2}, r"type set .*JSON has no set\. Pass list\(value\) instead"),
    ({"at": [datetime.datetime(2024, 1, 2)]}, r"type dict .*Pass value\.isoformat\(\)"),
    (datetime.timedelta(1), r"Pass value\.total_seconds\(\)"),
    ([b"x"], "base64"),
    ({(1, 2): 3}, "keys must be str"),
]


def test_a_value_that_cannot_be_set_says_what_to_pass(live: LiveSession) -> None:
    for value, advice in ADVICE:
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
    assert found["a"].type == "list"
    assert found["a"].size_bytes >= 8000
    assert len(found["a"].repr) < 130
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


@pytest.mark.depends_on_user
def test_a_session_never_sees_another_sessions_changes(shared: SandboxSessionServer) -> None:
    seen = list[tuple[str, str]]()
    with (
        open_session(shared, keep_processes=True) as one,
        open_session(shared, keep_processes=True) as other,
    ):
        for session in (one, other):
            session.run_ok(f"mark = {MARK!r}")
        for name, (change, probe) in CHANGES.items():
            one.run_ok(change)
            seen += [("another session", name)] * (MARK in other.output_of(probe))
            if MARK not in one.output_of(probe):
                seen.append(("the check cannot detect the change", name))
        for name, (_, probe) in CHANGES.items():  # nor what the other one has done meanwhile
            seen += [("another session, later", name)] * (MARK in other.output_of(probe))
    assert seen == []


@pytest.mark.depends_on_user
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
    live.crash("os._exit(1)")
    is_same = "threading.current_thread().native_id == threading.get_native_id()"
    assert live.run_ok(f"print(seen, {is_same})") == "[] True"


@pytest.mark.depends_on_user
def test_code_never_sees_the_checkpoints_of_its_session(live: LiveSession) -> None:
    live.run_ok("import os")
    seen = {
        live.run_ok("print(len([name for name in os.listdir('/proc') if name.isdigit()]))")
        for _ in range(20)
    }
    assert seen == {"1"}


@pytest.mark.depends_on_user
def test_without_a_sandbox_another_session_is_visible(tmp_path: Path) -> None:
    with local(tmp_path) as one:
        change, probe = CHANGES["/dev/shm"]
        output_of(one, change.replace("left", tmp_path.name))
        assert MARK in output_of(one, f"mark = {MARK!r}\n{probe}".replace("left", tmp_path.name))
        output_of(one, f"import os; os.unlink('/dev/shm/{tmp_path.name}')")


async def test_sessions_of_one_server_run_at_the_same_time(shared: SandboxSessionServer) -> None:
    one, other = (SandboxSessionCodeExecutor(server=shared) for _ in range(2))
    async with one, other:
        await meet([one, other])


def test_a_stopped_server_is_reported() -> None:
    with open_server() as running:
        live = open_session(running)
        live.run_ok("x = 1")
    with pytest.raises(ExecutorStopped, match="server of its session, was stopped"):
        live.run("x")
    live.stop()


@pytest.mark.depends_on_user
@pytest.mark.slow
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


# children that a block forks: they end with its code, and only the block is reported

FORK = "import os\nchild = os.fork()\n"
WAIT = "print('status', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\nx = 1"
IN_CHILD = {
    "raises": ("raise ValueError('in the child')", 1),
    "raises SystemExit": ("raise SystemExit(3)", 3),
    "reaches the end": ("print('in the child')", 0),
    "is interrupted": ("raise KeyboardInterrupt", 130),
    "shows a value in IPython's way": ("await __import__('asyncio').sleep(0)", 0),
}


def test_only_the_blocks_own_end_counts(live: LiveSession) -> None:
    for name, (code, status) in IN_CHILD.items():
        rest = WAIT.replace("\n", "\n    ")
        result = live.run(f"{FORK}if child == 0:\n    {code}\nelse:\n    {rest}")
        assert result.exit_code == 0, (name, result)
        assert result.output.splitlines()[-1] == f"status {status}", name
        assert ("in the child" in result.output) == ("in the child" in code), name
        assert live.run_ok("x") == "1", name


# other languages


def test_a_shell_block_sees_the_work_folder_but_not_the_variables(live: LiveSession) -> None:
    live.run_ok("import os\nopen('made.txt', 'w').write('by python')\nos.environ['SECRET'] = 'x'")
    text = "cat made.txt; echo; echo $SECRET; echo made > back.txt"
    assert live.run_ok(text, "sh") == "by python"
    assert live.run_ok("open('back.txt').read()") == "'made\\n'"


def test_a_shell_block_can_be_cancelled_before_its_process_exists(live: LiveSession) -> None:
    async def outcome_after(seconds: float) -> str:
        token = CancellationToken()
        block, events = CodeBlock("sleep 100", "sh"), list[Event]()
        async for event in live.executor.execute_stream([block], token):
            events.append(event)
            if isinstance(event, Started):
                asyncio.get_running_loop().call_later(seconds, token.cancel)
        return fold(events).blocks[0].outcome

    outcomes = [
        run_async(outcome_after(milliseconds / 1000)) for milliseconds in (0, 0, 1, 2, 4, 8)
    ]
    assert set(outcomes) == {"cancelled"}
