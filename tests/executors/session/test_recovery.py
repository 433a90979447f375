"""No cell takes a live session down: the next block is answered, with the variables of before, and the result says so."""

# ruff: noqa: E501 - a program a line

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CancellationToken,
    CheckpointError,
    CodeBlock,
    CodeResult,
    Limits,
    SandboxSessionServer,
)
from tests.executors.session.live_session import RESTORED, forked, server, session, wait
from tests.sandbox.probes import local

_PATIENCE = 8.0  # seconds for the answer after a cell that ended badly; on a quiet machine it takes some milliseconds


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    limits = Limits(
        memory_bytes=256 << 20,
        processes=60,
        tmp_bytes=64 << 20,
        output_bytes=1 << 20,
        written_bytes=256 << 20,
    )
    with server(limits=limits) as running:
        yield running


BEFORE = "import os, signal, sys, threading, time, ctypes, subprocess\nx, log = 41, ['before']\ndef f(): return x + 1"
SAME = "print(f(), log, 'y' in globals())"

# What a cell does to its process, and the exit code and outcome that it has.
ENDINGS: dict[str, tuple[str, int, str]] = {
    "os._exit": ("os._exit(3)", 3, "error"),
    "os._exit with 0": ("os._exit(0)", 0, "ok"),
    "a segfault": ("ctypes.string_at(0)", 139, "error"),
    "abort": ("os.abort()", 134, "error"),
    "a killed own process": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "error"),
    "a signal that ends": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", 143, "error"),
    "an alarm": ("signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(5)", 142, "error"),
    "exec of another program": ("os.execv('/bin/sh', ['sh', '-c', 'echo other; exit 7'])", 7, "error"),
    "exec that hangs on": ("os.execv('/bin/sleep', ['sleep', '100'])", 124, "timeout"),
    "a stack that overflows": ("sys.setrecursionlimit(10**9)\ndef g(n): return list(map(g, [n]))\ng(0)", 139, "error"),
    "a thread that exits": ("t = threading.Thread(target=os._exit, args=(5,)); t.start(); time.sleep(5)", 5, "error"),
    "an interrupt that is ignored": ("signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 124, "timeout"),
    "an interrupt that is caught": (
        "while True:\n  try:\n    while True: time.sleep(0.01)\n  except BaseException: pass", 124, "timeout"),
    "a call that does not return": ("signal.siginterrupt(2, False); ctypes.CDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)", 124, "timeout"),
    "a blocked signal mask": ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass", 124, "timeout"),
    "memory": ("y = []\nwhile True: y.append(bytearray(1 << 22))", 137, "out_of_memory"),
    "memory of children": (
        "signal.signal(2, signal.SIG_IGN)\nwhile True:\n  if os.fork() == 0:\n    y = bytearray(b'x') * (100 << 20); time.sleep(60)\n  time.sleep(0.01)",
        137, "out_of_memory"),
    "a closed control stream": ("os.closerange(3, 100000); os._exit(6)", 6, "error"),
    "an exit from a handler": ("import atexit; atexit.register(os._exit, 9); import faulthandler; faulthandler._sigsegv()",
                               139, "error"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_the_session_goes_on_with_the_variables_of_before(
    name: str, shared: SandboxSessionServer
) -> None:
    code, exit_code, outcome = ENDINGS[name]
    with session(shared, timeout=2) as live:
        live.done(BEFORE)
        for _ in range(2):
            ended = live.run(f"y = log.append('lost')\nx = 0\nprint('so far', flush=True)\n{code}")
            assert (ended.exit_code, ended.outcome) == (exit_code, outcome), ended
            assert (ended.session_restored, ended.notice) == (True, RESTORED)
            assert ended.output.startswith("so far\n")
            began = time.monotonic()
            result = live.run(SAME)
            assert (result.output, result.session_restored, result.notice) == (
                "42 ['before'] False\n",
                False,
                "",
            )
            assert time.monotonic() - began < _PATIENCE


# What a cell does that does not end it: the session goes on, either as it was before the cell or as after it.
MISCHIEF: dict[str, str] = {
    "closed descriptors": "os.closerange(0, 100000)",
    "closed descriptors, all": "os.system('true'); [os.close(int(n)) for n in os.listdir('/proc/self/fd') if n != '3']",
    "descriptors put over": "n = os.open('/dev/null', 2)\nfor t in range(1024):\n  if t != n: os.dup2(n, t)",
    "descriptors that are full": "os.set_blocking(1, False); [os.set_blocking(n, False) for n in range(700) if os.path.exists(f'/proc/self/fd/{n}')]",
    "all killed": "os.kill(-1, signal.SIGKILL)",
    "all killed, by a child": "subprocess.Popen(['sh', '-c', 'kill -9 -1']); time.sleep(0.3)",
    "the group killed": "os.killpg(0, signal.SIGKILL)",
    "the parent killed": "os.kill(os.getppid(), signal.SIGKILL); os.kill(1, signal.SIGKILL)",
    "children killed": "import glob\nfor n in os.listdir('/proc'):\n  if n.isdigit() and int(n) not in (1, os.getpid()): os.kill(int(n), 9)",
    "every process number killed": "for n in range(2, 3000):\n  try:\n    n != os.getpid() and os.kill(n, 9)\n  except OSError: pass",
    "every process number stopped": "for n in range(2, 3000):\n  try:\n    n != os.getpid() and os.kill(n, signal.SIGSTOP)\n  except OSError: pass",
    "own process stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "all stopped": "os.kill(-1, signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)",
    "children waited for": "try:\n  while True: os.wait()\nexcept ChildProcessError: pass",
    "children waited for, in C": "libc = ctypes.CDLL(None)\nwhile libc.waitpid(-1, None, 1) > 0: pass",
    "children never waited for": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "streams replaced": "class S:\n  def write(self, t): 1 / 0\n  def flush(self): 1 / 0\nsys.stdout = sys.stderr = S()",
    "streams that are None": "sys.stdout = sys.stderr = sys.__stdout__ = sys.stdin = None",
    "streams closed": "sys.stdout.close(); sys.stderr.close()",
    "a fork bomb": "while True:\n  try: os.fork()\n  except OSError: pass",
    "a fork bomb of daemons": "while True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass",
    "threads without end": "try:\n  while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nexcept RuntimeError: pass",
    "builtins removed": "import builtins\nfor n in ('len', 'print', 'isinstance', '__import__', 'open'): delattr(builtins, n)",
    "modules removed": "for n in list(sys.modules): n.startswith(('IPython', 'cellblock', 'json', 'os')) and sys.modules.pop(n)",
    "the shell broken": "get_ipython().run_cell = get_ipython().run_cell_async = None",
    "the shell's hooks broken": "get_ipython().display_formatter = get_ipython().displayhook = None\n5",
    "our own modules broken": "for n, m in list(sys.modules.items()):\n  if 'cellblock' in n or n in ('json', 'socket'): vars(m).clear()",
    "objects of ours broken": "import gc\nfor o in gc.get_objects():\n  if type(o).__name__ in ('Control', 'Session', 'Shell'): vars(o).clear()",
    "a tracer": "sys.settrace(lambda *_: 1 / 0); sys.setprofile(lambda *_: 1 / 0)",
    "a thread that keeps printing": "def p():\n  while True: os.write(1, b'x' * 4096)\nthreading.Thread(target=p, daemon=True).start()",
    "a folder that is gone": "import shutil; os.mkdir('/tmp/d'); os.chdir('/tmp/d'); os.rmdir('/tmp/d')",
    "a limit of its own": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
    "no descriptors left": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "no CPU left": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "a forked session": "os.fork()",
    "a forked session that answers": "os.fork(); os.fork(); print('twice')",
    "a chance to be killed": "open('/proc/self/oom_score_adj', 'w').write('1000')",
    "a full /tmp": "n = 0\ntry:\n  while True: open(f'/tmp/{n}', 'wb').write(bytes(1 << 22)); n += 1\nexcept OSError: pass",
    "signals to itself, late": "signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "an interrupt to itself": "os.kill(os.getpid(), signal.SIGINT)",
    "an interrupt to itself, late": "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()",
    "interpreter state": "sys.setrecursionlimit(60); gc = __import__('gc'); gc.disable(); gc.set_threshold(1)",
}  # fmt: skip


# After these, cells see what was done to them: the first one fails, and says why.
SEEN = {
    "builtins removed",
    "modules removed",
    "the shell broken",
    "the shell's hooks broken",
    "our own modules broken",
    "objects of ours broken",
    "a tracer",
    "a limit of its own",
    "no descriptors left",
    "interpreter state",
}
PROBE = "os.write(1, f'{f()} {log}'.encode()) and None"


def answered(name: str, result: CodeResult) -> bool:
    """Tell whether the variables were shown; between too much that a thread prints, they may be in what is left out."""
    was_cut = name == "a thread that keeps printing" and "bytes left out" in result.output
    return "42 ['before']" in result.output or was_cut


@pytest.mark.parametrize("name", MISCHIEF)
def test_the_session_answers_after(name: str, shared: SandboxSessionServer) -> None:
    with session(shared, timeout=2) as live:
        live.done(BEFORE)
        ended = live.run(MISCHIEF[name])
        began = time.monotonic()
        result = live.run(PROBE)
        assert time.monotonic() - began < _PATIENCE
        if result.exit_code == 0:
            assert answered(name, result), (ended, result)
        else:
            told = "Error" in result.output or result.session_restored or result.notice
            assert told, (ended, result)
            assert name in SEEN or result.session_restored or result.notice or ended.notice, (
                ended,
                result,
            )
        if name not in SEEN:
            assert answered(name, live.run(PROBE))
            assert live.get("x") == 41
            assert (
                live.run("print('text')").output.strip("x") == "text\n"
                or name == "a thread that keeps printing"
            )


@pytest.mark.parametrize(
    "name", ["a fork bomb", "own process stopped", "all killed", "a stack that overflows"]
)
def test_the_other_sessions_of_the_server_notice_nothing(
    name: str, shared: SandboxSessionServer
) -> None:
    with session(shared, timeout=1) as bad, session(shared, timeout=5) as good:
        good.done("x = 1")
        bad.run(
            BEFORE + "\n" + (MISCHIEF | {key: code for key, (code, _, _) in ENDINGS.items()})[name]
        )
        assert (good.done("x"), good.run("x").notice) == ("1", "")


def test_a_fatal_thread_between_cells_costs_what_could_not_be_kept(
    shared: SandboxSessionServer,
) -> None:
    with session(shared) as live:
        live.done("x = 1\nimport os, threading, time")
        live.done("x = 2; t = threading.Timer(0.2, os._exit, (5,)); t.start()")
        deadline = time.monotonic() + 10
        result = live.run("x")
        while not result.notice and time.monotonic() < deadline:
            result = live.run("x")
        # While the thread was there no copy could be made: the one of before it is the last.
        assert (result.session_restored, live.done("x")) == (False, "1"), result
        assert "Thread" in result.notice or "thread" in result.notice, result.notice
        assert result.notice in result.output


def test_an_interrupt_keeps_what_the_cell_has_done_so_far(shared: SandboxSessionServer) -> None:
    with session(shared, timeout=1) as live:
        live.done("x = 1")
        ended = live.run("x = 2\nprint('so far')\nwhile True: pass")
        assert (ended.exit_code, ended.output, ended.session_restored) == (
            124,
            "so far\n\nTimeout",
            False,
        )
        assert live.done("x") == "2"


# Where Python can raise nothing, and drops what comes there.
DEAF = {
    "a finalizer": "class Gone:\n  def __del__(self):\n    while True: pass\nGone()",
    "what follows a fork": "import os\ndef forever():\n  while True: pass\nos.register_at_fork(after_in_parent=forever)\nif os.fork() == 0: os._exit(0)",
    "a callback from C": "import ctypes\n@ctypes.CFUNCTYPE(None)\ndef forever():\n  while True: pass\nforever()",
}


@pytest.mark.parametrize("name", DEAF)
def test_an_interrupt_that_python_drops_is_given_again(
    name: str, shared: SandboxSessionServer
) -> None:
    with session(shared, timeout=1) as live:
        live.done("x = 1")
        ended = live.run(f"x = 2\nprint('so far')\n{DEAF[name]}\nwhile True: pass")
        assert (ended.exit_code, ended.output, ended.session_restored) == (
            124,
            "so far\n\nTimeout",
            False,
        )
        assert live.done("x") == "2"
        other = live.run(
            "class Bad:\n  def __del__(self): raise ValueError('dropped')\nBad() and None"
        )
        assert "ValueError: dropped" in other.output


def test_cancelling_keeps_the_session(shared: SandboxSessionServer) -> None:
    token = CancellationToken()
    with session(shared) as live:
        live.done("x = 1")
        code = [CodeBlock("x = 2\nprint('so far', flush=True)\nwhile True: pass", "python")]

        async def cancelled() -> Any:
            last = None
            async for event in live.executor.execute_stream(code, token):
                if getattr(event, "text", "").startswith("so far"):
                    token.cancel()
                last = event
            return last

        assert wait(cancelled()).exit_code == 125
        assert live.done("x") == "2"


def test_without_checkpoints_a_lost_session_says_so_and_begins_afresh(
    shared: SandboxSessionServer,
) -> None:
    with session(shared, checkpoints=False) as live:
        live.done("x = 1")
        ended = live.run("import os; os._exit(3)")
        assert (ended.exit_code, ended.session_restored) == (3, False)
        assert ended.notice == "The session was started afresh: its variables are gone."
        assert ended.notice in ended.output
        assert live.run("x").exit_code == 1
        assert live.done("1") == "1"


def test_values_that_take_the_session_down_cost_nothing_else(shared: SandboxSessionServer) -> None:
    with session(shared, timeout=2) as live:
        live.done(
            "import os\nx = 1\nclass Bomb(dict):\n    def items(self): os._exit(3)\nbomb = Bomb(a=1)"
        )
        live.done("class Slow:\n    def __repr__(self):\n        while True: pass\nslow = Slow()")
        for work in (lambda: live.get("bomb"), lambda: wait(live.executor.variables())):
            with pytest.raises(Exception, match="session"):
                work()
            assert live.done("x") == "1"


def test_output_without_end_is_cut_and_the_session_goes_on(shared: SandboxSessionServer) -> None:
    with session(shared, timeout=2) as live:
        live.done("x = 1")
        ended = live.run("import os\nwhile True: os.write(1, b'y' * 65536)")
        assert (ended.outcome, len(ended.output) < 2 << 20) == ("timeout", True)
        assert live.done("x") == "1"


def test_displays_without_end_are_bounded(shared: SandboxSessionServer) -> None:
    with session(shared, timeout=3) as live:
        live.done("x = 1")
        live.run("while True: display({'text/plain': 'z' * (1 << 20)}, raw=True)")
        assert live.done("x") == "1"


def test_a_cell_that_speaks_for_the_session_is_not_believed_for_long(
    shared: SandboxSessionServer,
) -> None:
    probe = """
import os, socket
for n in range(3, 2000):
    try:
        s = socket.socket(fileno=os.dup(n)); s.setblocking(False); s.send(b'nonsense' * 100)
    except OSError:
        pass
"""
    with session(shared, timeout=3) as live, session(shared) as other:
        live.done("x = 1")
        other.done("x = 2")
        live.run(probe)
        assert live.done("x") == "1"
        assert other.done("x") == "2"


def test_files_that_a_lost_cell_wrote_stay(shared: SandboxSessionServer, tmp_path: Path) -> None:
    with session(shared, tmp_path) as live:
        ended = live.run("import os\nopen('kept', 'w').write('kept')\nos._exit(3)")
        assert ended.files == ["kept"]
        assert (tmp_path / "kept").read_text() == "kept"


def test_processes_of_a_cell_end_with_it_unless_they_may_stay(shared: SandboxSessionServer) -> None:
    start = "import os, signal, subprocess; p = subprocess.Popen(['sleep', '100'])"
    count = "print(sum('sleep' in open(f'/proc/{n}/comm').read() for n in os.listdir('/proc') if n.isdigit()))"
    with session(shared) as live, session(shared, keep_processes=True) as keeping:
        for one in (live, keeping):
            one.done(start)
        assert live.done("print(p.wait(5))") == "-9"
        assert keeping.done("print(p.poll())") == "None"
        assert keeping.done(count) == "1"
        assert keeping.run("os._exit(3)").exit_code == 3
        assert keeping.done(count) == "0"


def test_without_a_server_that_looks_after_it_a_process_is_lost(tmp_path: Path) -> None:
    with local(tmp_path) as free:
        for code, exit_code in (
            ("os._exit(3)", 3),
            ("ctypes.string_at(0)", 139),
            ("os.kill(os.getpid(), 9)", 137),
        ):
            result = free.execute_code_blocks(
                [CodeBlock(f"import os, ctypes\n{code}\nprint('alive')", "python")]
            )
            assert (result.exit_code, "alive" in result.output) == (exit_code, False)


def test_a_session_that_cannot_be_copied_for_want_of_processes_is_as_it_was(
    shared: SandboxSessionServer,
) -> None:
    fill = "import subprocess\nfound = []\ntry:\n  while True: found.append(subprocess.Popen(['sleep', '100']))\nexcept OSError: pass"
    look = "import signal; print(signal.getsignal(signal.SIGTERM), open('/proc/self/oom_score_adj').read())"
    with session(shared, keep_processes=True) as live:
        usual = live.done(look)
        live.done(fill)
        assert live.done(look) == usual
        with pytest.raises(CheckpointError):
            live.checkpoint()
        assert (
            live.done(f"[one.kill() for one in found]; [one.wait() for one in found]\n{look}")
            == usual
        )
        assert live.run("import os; os._exit(3)").session_restored
        assert live.done("len(found) > 3") == "True"


def test_handlers_of_signals_are_those_of_before(shared: SandboxSessionServer) -> None:
    with session(shared) as live:
        live.done("import os, signal; hits = []")
        for name in ("SIGTERM", "SIGHUP"):
            live.done(f"signal.signal(signal.{name}, lambda *_: hits.append({name!r})) and None")
        assert live.run("os._exit(3)").session_restored
        assert (
            live.done("[os.kill(os.getpid(), n) for n in (signal.SIGTERM, signal.SIGHUP)]; hits")
            == "['SIGTERM', 'SIGHUP']"
        )


ALL_SIGNALS = """for process in set(range(2, 1000)) - {os.getpid()}:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try: os.kill(process, number)
        except OSError: break"""


def test_copies_hear_no_signals_and_those_that_were_for_them_come_to_nobody(
    shared: SandboxSessionServer,
) -> None:
    with session(shared) as live:
        live.done("import os, signal; kept, hits = 1, []")
        live.done("signal.signal(signal.SIGUSR1, lambda *_: hits.append(1)) and None")
        mark = live.checkpoint()
        for _ in range(2):
            assert live.run(f"{ALL_SIGNALS}\nos._exit(3)").session_restored
            assert live.done("kept, hits") == "(1, [])"
        live.restore(mark)
        assert live.done("os.kill(os.getpid(), signal.SIGUSR1); kept, hits") == "(1, [1])"


def test_a_branch_has_the_sessions_handlers_and_mask_of_signals(
    shared: SandboxSessionServer,
) -> None:
    with session(shared) as live:
        live.done(
            "import os, signal; hits = []; signal.signal(signal.SIGTERM, lambda *_: hits.append('TERM')) and None"
        )
        live.done("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}) and None")
        look = "os.kill(os.getpid(), signal.SIGTERM); hits, signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR2}"
        mark = live.checkpoint()
        for source in (None, mark):
            with forked(live, mark=source) as (branch,):
                assert branch.done(look) == "(['TERM'], True)"
        assert live.run("os._exit(3)").session_restored
        assert live.done(look) == "(['TERM'], True)"


def test_a_session_goes_on_though_code_has_made_all_descriptors_non_blocking(
    shared: SandboxSessionServer,
) -> None:
    with session(shared) as live:
        live.done("import os; kept = 1")
        live.done(
            "[os.set_blocking(n, False) for n in range(1000) if os.path.exists(f'/proc/self/fd/{n}')] and None"
        )
        for _ in range(3):
            time.sleep(0.1)
            result = live.run("kept, len('x' * 300_000)")
            assert (result.output, result.notice, result.session_restored) == (
                "(1, 300000)\n",
                "",
                False,
            )


TAKEN_AWAY = """import gc, os, select, signal, time
needed = 'stat lstat fspath getpid fsdecode fsencode confstr time'.split()  # by IPython and Python
for module in (gc, os, select, signal, time):
    for name, value in list(vars(module).items()):
        if callable(value) and name[:1] != '_' and not isinstance(value, type) and name not in needed: setattr(module, name, None)"""


def test_a_session_does_not_need_what_its_code_took_away(shared: SandboxSessionServer) -> None:
    with session(shared) as live:
        live.done(TAKEN_AWAY)
        live.done("x = 1")
        mark = live.checkpoint()
        assert live.done("x = 2; x") == "2"
        live.restore(mark)
        assert live.done("x") == "1"
        with forked(live) as (branch,):
            assert branch.done("x, os.open, os.close") == "(1, None, None)"
        assert live.run("import ctypes; ctypes.string_at(0)").session_restored
        assert live.done("x") == "1"
