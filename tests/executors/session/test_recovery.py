"""No block can destroy a live session: the next block runs with the variables from before it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from cellblock import (
    CheckpointError,
    CodeBlock,
    CodeResult,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionCodeResult,
    SessionError,
)
from tests.executors.session.hostile_blocks import (
    DISTURBANCES,
    ENDINGS,
    LASTING_DISTURBANCES,
    VISIBLE_DISTURBANCES,
)
from tests.executors.session.live_session import LiveSession, forked, open_session, run_async
from tests.sandbox.probes import local
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.depends_on_user


@pytest.fixture
def shared(strict_server: SandboxSessionServer) -> SandboxSessionServer:
    return strict_server


BEFORE = (
    "import os, signal, sys, threading, time, ctypes, subprocess\nx, log = 41, ['before']\n"
    "def f(): return x + 1"
)
CHANGE = "y = log.append('lost')\nx = 0\nprint('so far', flush=True)"
SHOW_STATE = "print(f(), log, 'y' in globals())"


@pytest.mark.parametrize("timeout", [30, 1])
def test_the_session_continues_with_the_variables_from_before(
    timeout: int, shared: SandboxSessionServer
) -> None:
    with open_session(shared, timeout=timeout) as live:
        live.run_ok(BEFORE)
        for name, (code, exit_code, outcome) in ENDINGS.items():
            if (outcome == "timeout") != (timeout == 1):
                continue
            ended = live.crash(f"{CHANGE}\n{code}")
            assert (ended.exit_code, ended.outcome) == (exit_code, outcome), (name, ended)
            assert ended.output.startswith("so far\n"), name
            result = live.run(SHOW_STATE)
            found = (result.output, result.session_restored, result.notice)
            assert found == ("42 ['before'] False\n", False, ""), (name, result)


PROBE = "os.write(1, f'{f()} {log}'.encode()) and None"


def shows_variables(name: str, result: CodeResult) -> bool:
    """Return True if the output shows the variables, or was truncated because of a busy thread."""
    was_truncated = name == "a thread that keeps printing" and "bytes left out" in result.output
    return "42 ['before']" in result.output or was_truncated


BOMBS = {name for name in LASTING_DISTURBANCES if "bomb" in name}  # they use whole processors
CASES = [
    *exhaustive(DISTURBANCES, keep=11),
    *exhaustive([name for name in LASTING_DISTURBANCES if name not in BOMBS]),
    *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(BOMBS)),
    *exhaustive(VISIBLE_DISTURBANCES, keep=4),
]
ALL_DISTURBANCES = {**DISTURBANCES, **LASTING_DISTURBANCES, **VISIBLE_DISTURBANCES}


@pytest.mark.parametrize("name", CASES)
def test_the_session_responds_after_a_disturbance(name: str, shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=1 if name in LASTING_DISTURBANCES else 30) as live:
        live.run_ok(BEFORE)
        ended = live.run(ALL_DISTURBANCES[name])
        if name.endswith(", late"):
            time.sleep(0.5)  # it comes between two blocks
        result = live.run(PROBE)
        found = (ended, result)
        if result.exit_code == 0:
            assert shows_variables(name, result), found
        else:
            is_reported = result.session_restored or result.notice
            assert is_reported or "Error" in result.output, found
            assert name in VISIBLE_DISTURBANCES or is_reported or ended.notice, found
        if name not in VISIBLE_DISTURBANCES:
            assert shows_variables(name, live.run(PROBE))
            assert live.get("x") == 41
            text = live.run("print('text')").output.strip("x")
            assert text == "text\n" or name == "a thread that keeps printing"


@pytest.mark.parametrize(
    "names",
    [
        ["own process stopped", "all killed", "a stack that overflows"],
        pytest.param(["a fork bomb", "a fork bomb of daemons"], marks=pytest.mark.slow),
    ],
)
def test_other_sessions_of_the_server_are_unaffected(
    names: list[str], shared: SandboxSessionServer
) -> None:
    with open_session(shared) as good:
        good.run_ok("x = 1")
        for name in names:
            code = ALL_DISTURBANCES.get(name) or ENDINGS[name][0]
            with open_session(shared, timeout=1) as bad:
                bad.run(f"{BEFORE}\n{code}")
                assert (good.run_ok("x"), good.run("x").notice) == ("1", ""), name


SO_FAR = (124, "so far\n\nTimeout", False)


def shown(result: SessionCodeResult) -> tuple[int, str, bool]:
    return result.exit_code, result.output, result.session_restored


# Code in which Python cannot raise an exception and drops the interrupt.
DROPPED_INTERRUPTS = {
    "a finalizer": "class Gone:\n  def __del__(self):\n    while True: pass\nGone()",
    # Python 3.12 and later warn about a fork with another thread running.
    "what follows a fork": (
        "import os, warnings\nwarnings.simplefilter('ignore')\ndef forever():\n"
        "  while True: pass\nos.register_at_fork(after_in_parent=forever)\n"
        "if os.fork() == 0: os._exit(0)"
    ),
    "a callback from C": (
        "import ctypes\n@ctypes.CFUNCTYPE(None)\ndef forever():\n  while True: pass\nforever()"
    ),
    # What is called when it is dropped takes long, as on a busy machine.
    "a finalizer and its hook": (
        "import _thread, time\nstart = _thread.start_new_thread\ndef start_slowly(*given):\n"
        "  thread, until = start(*given), time.monotonic() + 0.1\n"
        "  while time.monotonic() < until: pass\n  return thread\n"
        "_thread.start_new_thread = start_slowly\n"
        "class Gone:\n  def __del__(self):\n    while True: pass\nGone()"
    ),
}


def test_an_interrupt_that_python_drops_is_repeated(shared: SandboxSessionServer) -> None:
    for name, code in DROPPED_INTERRUPTS.items():
        with open_session(shared, timeout=1) as live:
            live.run_ok("x = 1")
            ended = live.run(f"x = 2\nprint('so far')\n{code}\nwhile True: pass")
            assert shown(ended) == SO_FAR, (name, ended)
            assert live.run_ok("x") == "2", name
            other = "class Bad:\n  def __del__(self): raise ValueError('dropped')\nBad() and None"
            assert "ValueError: dropped" in live.run(other).output, name


def test_an_interrupted_block_that_waits_for_a_cpu_has_time_to_end(hurried: LiveSession) -> None:
    hurried.run_ok("import os, time\nx = 1")
    processor = min(os.sched_getaffinity(0))
    hurried.run_ok(f"os.sched_setaffinity(0, {{{processor}}})")
    with contextlib.ExitStack() as others:
        for _ in range(4):
            # Each in a session of its own, which the kernel gives a share of its own.
            command = ["taskset", "-c", str(processor), "sh", "-c", "while :; do :; done"]
            other = subprocess.Popen(command, start_new_session=True)
            others.callback(other.wait)
            others.callback(other.kill)
        ended = hurried.run(
            "try:\n  while True: os.getpid()\n"
            "except KeyboardInterrupt:\n  until = time.monotonic() + 1.5\n"
            "while time.monotonic() < until: pass\nx = 2"
        )
    assert (ended.outcome, ended.session_restored) == ("timeout", False), ended
    assert hurried.run_ok("x") == "2"


def test_without_checkpoints_a_lost_session_is_restarted(shared: SandboxSessionServer) -> None:
    with open_session(shared, checkpoints=False) as live:
        live.run_ok("x = 1")
        ended = live.run("import os; os._exit(3)")
        assert (ended.exit_code, ended.session_restored) == (3, False)
        assert ended.notice == "The session was restarted: its variables are gone."
        assert ended.notice in ended.output
        assert live.run("x").exit_code == 1
        assert live.run_ok("1") == "1"


def test_a_value_that_kills_the_session_does_nothing_else(hurried: LiveSession) -> None:
    hurried.run_ok(
        "import os\nx = 1\nclass Bomb(dict):\n    def items(self): os._exit(3)\nbomb = Bomb(a=1)"
    )
    hurried.run_ok("class Slow:\n    def __repr__(self):\n        while True: pass\nslow = Slow()")
    for work in (lambda: hurried.get("bomb"), lambda: run_async(hurried.executor.variables())):
        with pytest.raises(Exception, match="session"):
            work()
        assert hurried.run_ok("x") == "1"


@pytest.mark.slow
def test_endless_output_and_displays_are_limited_and_the_session_continues(
    hurried: LiveSession,
) -> None:
    hurried.run_ok("x = 1")
    ended = hurried.run("import os\nwhile True: os.write(1, b'y' * 65536)")
    assert (ended.outcome, len(ended.output) < 2 << 20) == ("timeout", True)
    assert hurried.run_ok("x") == "1"
    hurried.run("while True: display({'text/plain': 'z' * (1 << 20)}, raw=True)")
    assert hurried.run_ok("x") == "1"


def test_a_block_that_sends_nonsense_is_detected(shared: SandboxSessionServer) -> None:
    probe = """
import os, socket
for n in range(3, 2000):
    try:
        s = socket.socket(fileno=os.dup(n)); s.setblocking(False); s.send(b'nonsense' * 100)
    except OSError:
        pass
"""
    with open_session(shared) as live, open_session(shared) as other:
        live.run_ok("x = 1")
        other.run_ok("x = 2")
        live.run(probe)
        assert live.run_ok("x") == "1"
        assert other.run_ok("x") == "2"


def test_files_written_by_a_killed_block_are_kept(live: LiveSession) -> None:
    ended = live.run("import os\nopen('kept', 'w').write('kept')\nos._exit(3)")
    assert ended.files == ["kept"]
    assert (live.folder / "kept").read_text() == "kept"


def test_processes_of_a_block_are_killed_unless_kept(shared: SandboxSessionServer) -> None:
    start = "import os, signal, subprocess; p = subprocess.Popen(['sleep', '100'])"
    count = (
        "print(sum('sleep' in open(f'/proc/{n}/comm').read() for n in os.listdir('/proc') if "
        "n.isdigit()))"
    )
    with open_session(shared) as live, open_session(shared, keep_processes=True) as keeping:
        for one in (live, keeping):
            one.run_ok(start)
        assert live.run_ok("print(p.wait())") == "-9"
        assert keeping.run_ok("print(p.poll())") == "None"
        assert keeping.run_ok(count) == "1"
        assert keeping.run("os._exit(3)").exit_code == 3
        assert keeping.run_ok(count) == "0"


def test_without_a_server_a_killed_process_is_lost(tmp_path: Path) -> None:
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


def test_a_session_that_cannot_fork_at_the_process_limit_is_unchanged(keeping: LiveSession) -> None:
    fill = (
        "import subprocess\nfound = []\ntry:\n"
        "  while True: found.append(subprocess.Popen(['sleep', '100']))\nexcept OSError: pass"
    )
    look = (
        "import signal; print(signal.getsignal(signal.SIGTERM), "
        "open('/proc/self/oom_score_adj').read())"
    )
    usual = keeping.run_ok(look)
    keeping.run_ok(fill)
    assert keeping.run(look).stdout.strip() == usual
    with pytest.raises(CheckpointError):
        keeping.checkpoint()
    keeping.run_ok("for one in found: one.kill(), one.wait()")
    assert keeping.run_ok(look) == usual
    keeping.crash()
    assert keeping.run_ok("len(found) > 3") == "True"


ALL_SIGNALS = """for process in set(range(2, 1000)) - {os.getpid()}:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try: os.kill(process, number)
        except OSError: break"""


def test_checkpoint_processes_receive_no_signals(live: LiveSession) -> None:
    live.run_ok("import os, signal; kept, hits = 1, []")
    live.run_ok("signal.signal(signal.SIGUSR1, lambda *_: hits.append(1)) and None")
    checkpoint = live.checkpoint()
    for _ in range(2):
        live.crash(f"{ALL_SIGNALS}\nos._exit(3)")
        assert live.run_ok("kept, hits") == "(1, [])"
    live.restore(checkpoint)
    assert live.run_ok("os.kill(os.getpid(), signal.SIGUSR1); kept, hits") == "(1, [1])"


def test_copies_have_the_signal_handlers_and_mask_of_their_session(live: LiveSession) -> None:
    live.run_ok("import os, signal; hits = []")
    for name in ("SIGTERM", "SIGHUP"):
        live.run_ok(f"signal.signal(signal.{name}, lambda *_: hits.append({name!r})) and None")
    live.run_ok("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}) and None")
    look = (
        "for n in (signal.SIGTERM, signal.SIGHUP): os.kill(os.getpid(), n)\n"
        "hits, signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR2}"
    )
    checkpoint = live.checkpoint()
    for source in (None, checkpoint):
        with forked(live, checkpoint=source) as (branch,):
            assert branch.run_ok(look) == "(['SIGTERM', 'SIGHUP'], True)"
    live.crash()
    assert live.run_ok(look) == "(['SIGTERM', 'SIGHUP'], True)"


def test_a_session_works_after_code_made_all_descriptors_non_blocking(live: LiveSession) -> None:
    live.run_ok("import os; kept = 1")
    live.run_ok(
        "[os.set_blocking(n, False) for n in range(1000) if "
        "os.path.exists(f'/proc/self/fd/{n}')] and None"
    )
    for _ in range(3):
        result = live.run("kept, len('x' * 300_000)")
        found = (result.output, result.notice, result.session_restored)
        assert found == ("(1, 300000)\n", "", False)


REMOVE_BUILTINS = """import gc, os, select, signal, time
needed = 'stat lstat fspath getpid fsdecode fsencode confstr time'.split()  # by IPython and Python
for module in (gc, os, select, signal, time):
    for name, value in list(vars(module).items()):
        is_function = callable(value) and not isinstance(value, type)
        if is_function and name[:1] != '_' and name not in needed: setattr(module, name, None)"""


def test_a_session_works_after_code_removed_functions_it_uses(live: LiveSession) -> None:
    live.run_ok(REMOVE_BUILTINS)
    live.run_ok("x = 1")
    checkpoint = live.checkpoint()
    assert live.run_ok("x = 2; x") == "2"
    live.restore(checkpoint)
    assert live.run_ok("x") == "1"
    with forked(live) as (branch,):
        assert branch.run_ok("x, os.open, os.close") == "(1, None, None)"
    live.crash("import ctypes; ctypes.string_at(0)")
    assert live.run_ok("x") == "1"


DIE_SOON = """import signal
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, 0.05)"""


def test_a_value_reaches_a_session_that_is_being_replaced(shared: SandboxSessionServer) -> None:
    errors = set[str]()

    async def run() -> None:
        # A value that was sent to no process makes the session wait for it: up to this limit.
        async with SandboxSessionCodeExecutor(10, server=shared) as session:
            for number in range(20):
                await session.execute_code_blocks([CodeBlock(DIE_SOON, "python")])
                await asyncio.sleep(0.045 + 0.001 * number)
                try:
                    await session.set("value", bytes([number]) * 300_000)
                except SessionError as error:
                    errors.add(str(error))

    asyncio.run(run())
    assert errors <= {"The session's process ended."}  # after it had the value


# what a rollback brings back, how old it is, and what the copies for it must not hold up

STORM = (
    "import os, time\nwhile True:\n    try: pid = os.fork()\n    except OSError: break\n"
    "    if pid == 0: time.sleep(600); os._exit(0)"
)


def test_processes_that_ended_with_their_block_do_not_prevent_checkpoints(
    live: LiveSession,
) -> None:
    live.run_ok("keep = 5")
    live.run_ok(STORM)
    for number in range(5):
        assert live.run(f"k{number} = 1").notice == ""
    live.crash("os._exit(4)")
    assert live.run_ok("keep, k0, k4") == "(5, 1, 1)"


def test_processes_that_are_kept_leave_room_for_checkpoints(keeping: LiveSession) -> None:
    for code in ("keep = 5", "keep += 1", STORM):
        keeping.run_ok(code)
    for number in range(5):
        assert keeping.run(f"k{number} = 1").notice == ""
    keeping.crash("os._exit(4)")
    assert keeping.run_ok("keep, k0, k4") == "(6, 1, 1)"


def test_a_session_that_cannot_be_saved_says_so_once_and_reports_what_is_lost(
    keeping: LiveSession,
) -> None:
    keeping.run_ok("keep = 5")  # there is no older checkpoint yet, whose process could be used
    keeping.run_ok(STORM)
    warned = keeping.run("k = 1")
    assert (warned.exit_code, warned.session_restored, warned.lost_blocks) == (0, False, 0)
    assert "cannot be copied: no process could be forked" in warned.notice
    assert keeping.run("k = 2").notice == ""
    with pytest.raises(CheckpointError, match="other child processes"):
        keeping.checkpoint()
    ended = keeping.run("os._exit(4)")
    assert (ended.session_restored, ended.lost_blocks) == (False, 3), ended
    assert ended.notice.startswith(
        "Variables are lost: the session went back to its state of 3 blocks before this one."
    )
    assert keeping.run_ok("keep, 'k' in globals()") == "(5, False)"


def test_a_crash_does_not_undo_what_a_checkpoint_has_saved(live: LiveSession) -> None:
    live.run_ok("import os, threading\nfree = threading.Event()\nx = 1")
    live.run_ok("thread = threading.Thread(target=free.wait); thread.start()")
    # It ends after the block, so that no automatic checkpoint of this block can be made.
    live.run_ok("x = 2; threading.Timer(0.5, free.set).start()")
    deadline = time.monotonic() + 50
    while True:
        try:
            live.checkpoint()
            break
        except CheckpointError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    live.crash("os._exit(4)")
    assert live.run_ok("x") == "2"


def test_a_fatal_thread_between_blocks_loses_only_itself(live: LiveSession) -> None:
    live.run_ok("x = 1\nimport os, threading, time")
    live.run_ok(
        "x = 2\ndef end():\n  while not os.path.exists('go'): time.sleep(0.01)\n  os._exit(5)\n"
        "threading.Thread(target=end).start()"
    )
    live.run_ok("1")  # the automatic checkpoint of the block before it exists now
    (live.folder / "go").touch()
    result = live.run("x")
    while "was restored" not in result.notice:
        result = live.run("x")
    assert not result.session_restored, result
    assert live.run_ok("x, 't' in globals()") == "(2, False)"
    assert "the Python thread 'Thread-" in result.notice, result.notice
    assert result.notice in result.output


def test_a_kept_process_sees_the_end_of_its_input_in_a_later_block(keeping: LiveSession) -> None:
    # The rollback checkpoint is a fork, which has the pipes too.
    keeping.run_ok(
        "from subprocess import PIPE, Popen\np = Popen(['cat'], stdin=PIPE, stdout=PIPE)"
    )
    assert keeping.run_ok("p.communicate(b'data')") == "(b'data', None)"


def test_after_a_rollback_a_pipe_to_a_kept_process_is_broken(keeping: LiveSession) -> None:
    keeping.run_ok(
        "import os, subprocess\n"
        "p = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "own_reader, own_writer = os.pipe()"
    )
    assert keeping.run("os._exit(1)").session_restored
    assert "BrokenPipeError" in keeping.output_of("os.write(p.stdin.fileno(), b'data')")
    keeping.run_ok("os.write(own_writer, b'data')")
    assert keeping.run_ok("os.read(own_reader, 9)") == "b'data'"
