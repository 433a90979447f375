"""No block can destroy a live session: the next block runs with the variables from before it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CancellationToken,
    CheckpointError,
    CodeBlock,
    CodeResult,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionError,
)
from tests.executors.session.hostile_blocks import (
    DISTURBANCES,
    ENDINGS,
    LASTING_DISTURBANCES,
    VISIBLE_DISTURBANCES,
)
from tests.executors.session.live_session import (
    RESTORED,
    forked,
    open_session,
    run_async,
)
from tests.sandbox.probes import local


@pytest.fixture
def shared(strict_server: SandboxSessionServer) -> SandboxSessionServer:
    return strict_server


BEFORE = (
    "import os, signal, sys, threading, time, ctypes, subprocess\nx, log = 41, ['before']\n"
    "def f(): return x + 1"
)
SHOW_STATE = "print(f(), log, 'y' in globals())"


@pytest.mark.parametrize("name", ENDINGS)
def test_the_session_continues_with_the_variables_from_before(
    name: str, shared: SandboxSessionServer
) -> None:
    code, exit_code, outcome = ENDINGS[name]
    with open_session(shared, timeout=1 if outcome == "timeout" else 30) as live:
        live.run_ok(BEFORE)
        for _ in range(1 if outcome == "timeout" else 2):
            ended = live.run(f"y = log.append('lost')\nx = 0\nprint('so far', flush=True)\n{code}")
            assert (ended.exit_code, ended.outcome) == (exit_code, outcome), ended
            assert (ended.session_restored, ended.notice) == (True, RESTORED)
            assert ended.output.startswith("so far\n")
            result = live.run(SHOW_STATE)
            assert (result.output, result.session_restored, result.notice) == (
                "42 ['before'] False\n",
                False,
                "",
            )


PROBE = "os.write(1, f'{f()} {log}'.encode()) and None"


def shows_variables(name: str, result: CodeResult) -> bool:
    """Return True if the output shows the variables, or was truncated because of a busy thread."""
    was_truncated = name == "a thread that keeps printing" and "bytes left out" in result.output
    return "42 ['before']" in result.output or was_truncated


@pytest.mark.parametrize("name", DISTURBANCES)
def test_the_session_responds_after_a_disturbance(name: str, shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=1 if name in LASTING_DISTURBANCES else 30) as live:
        live.run_ok(BEFORE)
        ended = live.run(DISTURBANCES[name])
        if name.endswith(", late"):
            time.sleep(0.5)  # it comes between two blocks
        result = live.run(PROBE)
        if result.exit_code == 0:
            assert shows_variables(name, result), (ended, result)
        else:
            is_reported = "Error" in result.output or result.session_restored or result.notice
            assert is_reported, (ended, result)
            assert (
                name in VISIBLE_DISTURBANCES
                or result.session_restored
                or result.notice
                or ended.notice
            ), (
                ended,
                result,
            )
        if name not in VISIBLE_DISTURBANCES:
            assert shows_variables(name, live.run(PROBE))
            assert live.get("x") == 41
            assert (
                live.run("print('text')").output.strip("x") == "text\n"
                or name == "a thread that keeps printing"
            )


@pytest.mark.parametrize(
    "name", ["a fork bomb", "own process stopped", "all killed", "a stack that overflows"]
)
def test_other_sessions_of_the_server_are_unaffected(
    name: str, shared: SandboxSessionServer
) -> None:
    with open_session(shared, timeout=1) as bad, open_session(shared) as good:
        good.run_ok("x = 1")
        bad.run(
            BEFORE
            + "\n"
            + (DISTURBANCES | {key: code for key, (code, _, _) in ENDINGS.items()})[name]
        )
        assert (good.run_ok("x"), good.run("x").notice) == ("1", "")


def test_an_interrupt_keeps_the_state_so_far(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=1) as live:
        live.run_ok("import signal\nx = 1")
        ended = live.run("x = 2\nprint('so far')\nwhile True: signal.pause()")
        assert (ended.exit_code, ended.output, ended.session_restored) == (
            124,
            "so far\n\nTimeout",
            False,
        )
        assert live.run_ok("x") == "2"


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


@pytest.mark.parametrize("name", DROPPED_INTERRUPTS)
def test_an_interrupt_that_python_drops_is_repeated(
    name: str, shared: SandboxSessionServer
) -> None:
    with open_session(shared, timeout=1) as live:
        live.run_ok("x = 1")
        ended = live.run(f"x = 2\nprint('so far')\n{DROPPED_INTERRUPTS[name]}\nwhile True: pass")
        assert (ended.exit_code, ended.output, ended.session_restored) == (
            124,
            "so far\n\nTimeout",
            False,
        )
        assert live.run_ok("x") == "2"
        other = live.run(
            "class Bad:\n  def __del__(self): raise ValueError('dropped')\nBad() and None"
        )
        assert "ValueError: dropped" in other.output


def test_an_interrupted_block_that_waits_for_a_cpu_has_time_to_end(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared, timeout=1) as live:
        live.run_ok("import os, subprocess, time\nx = 1")
        live.run_ok("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")
        ended = live.run(
            "for _ in range(4): subprocess.Popen(['sh', '-c', 'while :; do :; done'])\n"
            "try:\n  while True: os.getpid()\n"
            "except KeyboardInterrupt:\n  until = time.monotonic() + 1.5\n"
            "while time.monotonic() < until: pass\nx = 2"
        )
        assert (ended.outcome, ended.session_restored) == ("timeout", False), ended
        assert live.run_ok("x") == "2"


def test_cancelling_keeps_the_session(shared: SandboxSessionServer) -> None:
    token = CancellationToken()
    with open_session(shared) as live:
        live.run_ok("x = 1")
        code = [CodeBlock("x = 2\nprint('so far', flush=True)\nwhile True: pass", "python")]

        async def cancelled() -> Any:
            last = None
            async for event in live.executor.execute_stream(code, token):
                if getattr(event, "text", "").startswith("so far"):
                    token.cancel()
                last = event
            return last

        assert run_async(cancelled()).exit_code == 125
        assert live.run_ok("x") == "2"


def test_without_checkpoints_a_lost_session_is_restarted_and_reported(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared, checkpoints=False) as live:
        live.run_ok("x = 1")
        ended = live.run("import os; os._exit(3)")
        assert (ended.exit_code, ended.session_restored) == (3, False)
        assert ended.notice == "The session was restarted: its variables are gone."
        assert ended.notice in ended.output
        assert live.run("x").exit_code == 1
        assert live.run_ok("1") == "1"


def test_a_value_that_kills_the_session_does_nothing_else(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=1) as live:
        live.run_ok(
            "import os\nx = 1\nclass Bomb(dict):\n    def items(self): os._exit(3)\n"
            "bomb = Bomb(a=1)"
        )
        live.run_ok("class Slow:\n    def __repr__(self):\n        while True: pass\nslow = Slow()")
        for work in (lambda: live.get("bomb"), lambda: run_async(live.executor.variables())):
            with pytest.raises(Exception, match="session"):
                work()
            assert live.run_ok("x") == "1"


def test_endless_output_is_truncated_and_the_session_continues(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared, timeout=1) as live:
        live.run_ok("x = 1")
        ended = live.run("import os\nwhile True: os.write(1, b'y' * 65536)")
        assert (ended.outcome, len(ended.output) < 2 << 20) == ("timeout", True)
        assert live.run_ok("x") == "1"


def test_endless_displays_are_limited(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=1) as live:
        live.run_ok("x = 1")
        live.run("while True: display({'text/plain': 'z' * (1 << 20)}, raw=True)")
        assert live.run_ok("x") == "1"


def test_a_block_that_forges_messages_of_the_session_is_detected(
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
    with open_session(shared) as live, open_session(shared) as other:
        live.run_ok("x = 1")
        other.run_ok("x = 2")
        live.run(probe)
        assert live.run_ok("x") == "1"
        assert other.run_ok("x") == "2"


def test_files_written_by_a_killed_block_are_kept(
    shared: SandboxSessionServer, tmp_path: Path
) -> None:
    with open_session(shared, tmp_path) as live:
        ended = live.run("import os\nopen('kept', 'w').write('kept')\nos._exit(3)")
        assert ended.files == ["kept"]
        assert (tmp_path / "kept").read_text() == "kept"


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


def test_a_session_that_cannot_fork_at_the_process_limit_is_unchanged(
    shared: SandboxSessionServer,
) -> None:
    fill = (
        "import subprocess\nfound = []\ntry:\n"
        "  while True: found.append(subprocess.Popen(['sleep', '100']))\nexcept OSError: pass"
    )
    look = (
        "import signal; print(signal.getsignal(signal.SIGTERM), "
        "open('/proc/self/oom_score_adj').read())"
    )
    with open_session(shared, keep_processes=True) as live:
        usual = live.run_ok(look)
        live.run_ok(fill)
        assert live.run(look).stdout.strip() == usual
        with pytest.raises(CheckpointError):
            live.checkpoint()
        assert (
            live.run_ok(f"[one.kill() for one in found]; [one.wait() for one in found]\n{look}")
            == usual
        )
        assert live.run("import os; os._exit(3)").session_restored
        assert live.run_ok("len(found) > 3") == "True"


def test_signal_handlers_are_restored(shared: SandboxSessionServer) -> None:
    with open_session(shared) as live:
        live.run_ok("import os, signal; hits = []")
        for name in ("SIGTERM", "SIGHUP"):
            live.run_ok(f"signal.signal(signal.{name}, lambda *_: hits.append({name!r})) and None")
        assert live.run("os._exit(3)").session_restored
        assert (
            live.run_ok("[os.kill(os.getpid(), n) for n in (signal.SIGTERM, signal.SIGHUP)]; hits")
            == "['SIGTERM', 'SIGHUP']"
        )


ALL_SIGNALS = """for process in set(range(2, 1000)) - {os.getpid()}:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try: os.kill(process, number)
        except OSError: break"""


def test_checkpoint_processes_receive_no_signals(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as live:
        live.run_ok("import os, signal; kept, hits = 1, []")
        live.run_ok("signal.signal(signal.SIGUSR1, lambda *_: hits.append(1)) and None")
        checkpoint = live.checkpoint()
        for _ in range(2):
            assert live.run(f"{ALL_SIGNALS}\nos._exit(3)").session_restored
            assert live.run_ok("kept, hits") == "(1, [])"
        live.restore(checkpoint)
        assert live.run_ok("os.kill(os.getpid(), signal.SIGUSR1); kept, hits") == "(1, [1])"


def test_a_branch_has_the_signal_handlers_and_mask_of_its_session(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as live:
        live.run_ok(
            "import os, signal; hits = []; signal.signal(signal.SIGTERM, "
            "lambda *_: hits.append('TERM')) and None"
        )
        live.run_ok("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}) and None")
        look = (
            "os.kill(os.getpid(), signal.SIGTERM); hits, "
            "signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR2}"
        )
        checkpoint = live.checkpoint()
        for source in (None, checkpoint):
            with forked(live, checkpoint=source) as (branch,):
                assert branch.run_ok(look) == "(['TERM'], True)"
        assert live.run("os._exit(3)").session_restored
        assert live.run_ok(look) == "(['TERM'], True)"


def test_a_session_works_after_code_made_all_descriptors_non_blocking(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as live:
        live.run_ok("import os; kept = 1")
        live.run_ok(
            "[os.set_blocking(n, False) for n in range(1000) if "
            "os.path.exists(f'/proc/self/fd/{n}')] and None"
        )
        for _ in range(3):
            result = live.run("kept, len('x' * 300_000)")
            assert (result.output, result.notice, result.session_restored) == (
                "(1, 300000)\n",
                "",
                False,
            )


REMOVE_BUILTINS = """import gc, os, select, signal, time
needed = 'stat lstat fspath getpid fsdecode fsencode confstr time'.split()  # by IPython and Python
for module in (gc, os, select, signal, time):
    for name, value in list(vars(module).items()):
        is_function = callable(value) and not isinstance(value, type)
        if is_function and name[:1] != '_' and name not in needed: setattr(module, name, None)"""


def test_a_session_works_after_code_removed_functions_it_uses(shared: SandboxSessionServer) -> None:
    with open_session(shared) as live:
        live.run_ok(REMOVE_BUILTINS)
        live.run_ok("x = 1")
        checkpoint = live.checkpoint()
        assert live.run_ok("x = 2; x") == "2"
        live.restore(checkpoint)
        assert live.run_ok("x") == "1"
        with forked(live) as (branch,):
            assert branch.run_ok("x, os.open, os.close") == "(1, None, None)"
        assert live.run("import ctypes; ctypes.string_at(0)").session_restored
        assert live.run_ok("x") == "1"


DIE_SOON = """import signal
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, 0.05)"""


def test_a_value_reaches_a_session_whose_process_is_being_replaced(
    shared: SandboxSessionServer,
) -> None:
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
