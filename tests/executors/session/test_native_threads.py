"""Pools of threads that are safe to fork, or can be ended, do not prevent copies of a session."""

from __future__ import annotations

import asyncio
import ctypes.util
import re
import shutil

import pytest

from cellblock import CheckpointError, SandboxSessionServer
from cellblock.environments.virtualenv import environment_for
from tests.executors.session.live_session import LiveSession, open_session, use_in_all_copies

CRASH = "import os; os._exit(1)"
EXECUTOR = """
from concurrent.futures import ThreadPoolExecutor
import threading
pool = ThreadPoolExecutor(3)
def use():
    assert [*pool.map(abs, range(-20, 0))] == [*range(20, 0, -1)]
use()
"""
OPENMP = """
import ctypes, os
gomp, libc = ctypes.CDLL("libgomp.so.1"), ctypes.CDLL(None)
def use():
    gomp.GOMP_parallel(ctypes.cast(libc.sched_yield, ctypes.c_void_p), None, 3, 0)
    assert len(os.listdir("/proc/self/task")) >= 3
use()
"""
INTEL_OPENMP = """
import ctypes, os
class Ident(ctypes.Structure):
    _fields_ = [("r1", ctypes.c_int32), ("flags", ctypes.c_int32), ("r2", ctypes.c_int32),
                ("r3", ctypes.c_int32), ("source", ctypes.c_char_p)]
ident = ctypes.byref(Ident(0, 2, 0, 0, b";unknown;unknown;0;0;;"))
openmp, libc = ctypes.CDLL("./libiomp5.so"), ctypes.CDLL(None)
def use():
    openmp.__kmpc_push_num_threads(ident, openmp.__kmpc_global_thread_num(ident), 3)
    openmp.__kmpc_fork_call(ident, 0, ctypes.cast(libc.sched_yield, ctypes.c_void_p))
    assert len(os.listdir("/proc/self/task")) >= 3
use()
"""
NATIVE_THREAD = """
import ctypes
libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
def start(name):
    libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)
    if name: libc.pthread_setname_np(thread, name)
"""
# idle workers of executors


def test_idle_workers_of_an_executor(live: LiveSession) -> None:
    live.run_ok(EXECUTOR)
    use_in_all_copies(live, "use()")


def test_workers_of_asyncios_default_executor(live: LiveSession) -> None:
    live.run_ok("import asyncio\nassert await asyncio.to_thread(abs, -1) == 1")
    use_in_all_copies(live, "assert await asyncio.to_thread(abs, -2) == 2")


def test_an_executor_that_runs_something_is_named(live: LiveSession) -> None:
    live.run_ok(f"{EXECUTOR}\ngo = threading.Event()\nresult = pool.submit(go.wait)")
    with pytest.raises(CheckpointError, match="the Python thread 'ThreadPoolExecutor-0_"):
        live.checkpoint()
    live.run_ok("go.set()\nassert result.result(timeout=10)\nuse()")
    live.checkpoint()


def test_a_task_that_was_just_submitted_is_done_in_all_copies(live: LiveSession) -> None:
    live.run_ok(EXECUTOR)
    for number in range(20):
        live.run_ok(f"result = pool.submit(abs, -{number})")
        live.run(CRASH)
        assert live.run_ok("result.result(timeout=10)") == str(number)


def test_workers_that_are_started_again_run_their_initializer(live: LiveSession) -> None:
    live.run_ok(
        "from concurrent.futures import ThreadPoolExecutor\nimport threading\n"
        "data = threading.local()\ndef prepare(): data.x = 7\n"
        "pool = ThreadPoolExecutor(1, initializer=prepare)\n"
        "def use(): assert pool.submit(lambda: data.x).result(timeout=10) == 7\nuse()"
    )
    use_in_all_copies(live, "use()")


def test_a_shutdown_of_a_copied_executor_is_final(live: LiveSession) -> None:
    live.run_ok(EXECUTOR)
    live.checkpoint()
    live.run_ok("use(); pool.shutdown()")
    assert "cannot schedule new futures after shutdown" in live.run("use()").output
    live.run(CRASH)
    assert "cannot schedule new futures after shutdown" in live.run("use()").output


# native threads


@pytest.mark.skipif(not ctypes.util.find_library("gomp"), reason="libgomp is not installed")
def test_pools_of_libgomp(live: LiveSession) -> None:
    live.run_ok(OPENMP)
    use_in_all_copies(live, "use(); use()")


def test_native_threads_are_named_or_counted(live: LiveSession) -> None:
    empty = live.checkpoint()
    for starts, named in (
        ("start(b'worker-7'); start(b'b'); start(b'b')", "thread 'worker-7', the thread 'b' (2 t"),
        ("start(b'')", "it has a native thread"),
        (
            "for number in range(12): start(b'worker-%d' % number)",
            "the thread 'worker-7', 4 other native threads",
        ),
    ):
        live.run(f"{NATIVE_THREAD}\n{starts}")
        with pytest.raises(CheckpointError, match=re.escape(named)):
            live.checkpoint()
        live.restore(empty)


# libraries


@pytest.mark.pythons
@pytest.mark.network
def test_pools_of_intels_openmp(live: LiveSession) -> None:
    environment = asyncio.run(environment_for(["intel-openmp==2021.4.0"]))
    shutil.copy(next(environment.rglob("libiomp5.so")), live.folder)
    live.run_ok(INTEL_OPENMP)
    use_in_all_copies(live, "use(); use()")


@pytest.mark.pythons
@pytest.mark.network
@pytest.mark.slow
def test_threads_that_prevent_a_copy_are_named_by_their_names(
    data_server: SandboxSessionServer,
) -> None:
    with open_session(data_server, timeout=100) as live:
        live.run_ok(
            "import polars as pl\npl.DataFrame({'a': [1, 2]}).sort('a')\nonce = (1 for _ in '')"
        )
        with pytest.raises(CheckpointError, match="the thread 'polars-0'") as caught:
            live.checkpoint()
        assert "libarrow" not in str(caught.value)
    with open_session(data_server, timeout=100) as live:
        live.run_ok("import duckdb\nc = duckdb.connect('a.duckdb')")
        with pytest.raises(CheckpointError, match=r"it has a thread of duckdb"):
            live.checkpoint()
