"""Progress bars of tqdm, with their thread and their lock, do not prevent copies of a session."""

from __future__ import annotations

import pytest

from cellblock import CheckpointError
from tests.executors.session.live_session import LiveSession, forked

LOOP = "from tqdm import tqdm\nfor i in tqdm(range(3)): pass"
CRASH = "import os; os._exit(1)"
HAS_MONITOR = (
    "import threading; print('tqdm_monitor' in [thread.name for thread in threading.enumerate()])"
)


# tqdm


def test_after_a_progress_bar_a_crash_loses_no_variables(live: LiveSession) -> None:
    for number in range(2):
        assert live.run(f"{LOOP}\n{HAS_MONITOR}").stdout.strip() == "True"
        live.run_ok(f"x = {number}")
        live.crash()
        assert live.run_ok("x") == str(number)


def test_a_crash_within_a_progress_bar_loses_no_variables(live: LiveSession) -> None:
    live.run_ok(f"{LOOP}\nx = 1")
    live.crash("x = 2\nfor i in tqdm(range(3)):\n  if i == 1: import os; os._exit(1)")
    assert "3/3" in live.run(LOOP).stderr
    assert live.run_ok("x") == "1"


def test_progress_bars_work_in_all_copies(live: LiveSession) -> None:
    live.run_ok(f"{LOOP}\nx = 1")
    checkpoint = live.checkpoint()
    live.run_ok(f"{LOOP}\nx = 2")
    with forked(live, 2) as branches, forked(live, checkpoint=checkpoint) as (earlier,):
        for one, value in ((branches[0], "2"), (branches[1], "2"), (earlier, "1"), (live, "2")):
            assert "3/3" in one.run(LOOP).stderr
            assert one.run_ok("x") == value
    live.restore(checkpoint)
    assert "3/3" in live.run(LOOP).stderr
    assert live.run_ok("x") == "1"
    live.checkpoint()


def test_an_open_progress_bar_goes_on_in_all_copies(live: LiveSession) -> None:
    live.run_ok("from tqdm import tqdm\nbar = tqdm(total=10, mininterval=0)\nbar.update(1)")
    checkpoint = live.checkpoint()
    assert "2/10" in live.run("_ = bar.update(1)").stderr
    with forked(live) as (branch,):
        assert "4/10" in branch.run("_ = bar.update(2)").stderr
    live.crash()
    assert "3/10" in live.run("_ = bar.update(1)").stderr
    live.restore(checkpoint)
    assert "10/10" in live.run("_ = bar.update(9); bar.close()").stderr


def test_a_thread_that_only_resembles_the_monitor_is_named(live: LiveSession) -> None:
    live.run_ok(LOOP)
    live.run_ok(
        "import threading, time\nclass TMonitor(threading.Thread):\n"
        "  was_killed = threading.Event()\n"
        "  def run(self): self.was_killed.wait()\n"
        "TMonitor.__module__ = 'tqdm._monitor'\n"
        "for _ in range(2): TMonitor(name='tqdm_monitor', daemon=True).start()"
    )
    with pytest.raises(CheckpointError, match=r"has the Python thread 'tqdm_monitor' \(2 times\)"):
        live.checkpoint()


def test_a_monitor_that_does_not_end_is_named_and_ends_later(live: LiveSession) -> None:
    live.run_ok(
        "from tqdm import tqdm\nimport sys, time\ntqdm.monitor_interval = 0.01\n"
        "tqdm.get_lock().acquire()\nbar = tqdm(range(3))\n"
        "def function(): return sys._current_frames()[tqdm.monitor.ident].f_code.co_name\n"
        "while function() != 'acquire': time.sleep(0.01)"
    )
    with pytest.raises(CheckpointError, match="the Python thread 'tqdm_monitor'"):
        live.checkpoint()
    live.run_ok("tqdm.get_lock().release()")
    live.checkpoint()


def test_a_monitor_that_code_has_changed_does_not_block_the_session(hurried: LiveSession) -> None:
    hurried.run_ok("x = 1")
    hurried.run_ok(f"{LOOP}\nimport time; tqdm.monitor.was_killed.set = lambda: time.sleep(100)")
    assert hurried.run("x").outcome == "timeout"
    assert hurried.run_ok("x") == "1"


# logging


def test_a_listener_of_logging_goes_on_in_all_copies(live: LiveSession) -> None:
    first = live.run(
        "import logging.handlers, queue\nrecords, seen = queue.Queue(), []\n"
        "class Handler(logging.Handler):\n  def emit(self, record): seen.append(record.msg)\n"
        "listener = logging.handlers.QueueListener(records, Handler())\nlistener.start()\n"
        "log = logging.getLogger('x'); log.addHandler(logging.handlers.QueueHandler(records))\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1); pool.submit(abs, 1).result()\n"
        "def use(text): log.warning(text); records.join(); return seen\n"
    )
    assert first.notice == ""
    checkpoint = live.checkpoint()
    assert live.run_ok("use('a')") == "['a']"
    with forked(live) as (branch,):
        assert branch.run_ok("use('b')") == "['a', 'b']"
    live.crash()
    assert live.run_ok("use('c')") == "['a', 'c']"
    live.restore(checkpoint)
    assert live.run_ok("use('d')") == "['d']"
    live.run_ok("listener.stop(); listener.start(); listener.stop()")
    assert live.run_ok("listener._thread") == ""


# semaphores

LOCKS = """
import multiprocessing
lock, free = multiprocessing.RLock(), multiprocessing.Semaphore(2)
"""
TAKE = "print(lock.acquire(timeout=5), free.acquire(timeout=5), free.acquire(timeout=5))"


def test_locks_that_a_killed_session_held_are_free_in_the_restored_one(live: LiveSession) -> None:
    live.run_ok(LOCKS)
    for _ in range(2):
        live.crash(f"{TAKE}\n{CRASH}")
    assert live.run_ok(f"{TAKE}\nprint(free.acquire(timeout=0.01))") == "True True True\nFalse"
    live.run_ok("lock.release(); free.release()")
    live.crash()
    assert live.run_ok("print(free.acquire(timeout=5), free.acquire(timeout=0.01))") == "True False"


def test_every_copy_has_locks_of_its_own(live: LiveSession) -> None:
    live.run_ok(LOCKS)
    checkpoint = live.checkpoint()
    assert live.run_ok(TAKE) == "True True True"
    with forked(live) as (branch,), forked(live, checkpoint=checkpoint) as (earlier,):
        assert earlier.run_ok(TAKE) == "True True True"
        branch.run_ok("lock.release(); free.release()")
        with forked(branch) as (again,):
            assert again.run_ok("print(lock.acquire(timeout=5))") == "True"
            assert again.run_ok("print(free.acquire(timeout=5))") == "True"
        assert live.run_ok("print(free.acquire(timeout=0.01))") == "False"
    for _ in range(2):
        live.restore(checkpoint)
        assert live.run_ok(TAKE) == "True True True"


def test_processes_share_the_locks_of_a_restored_session(live: LiveSession) -> None:
    live.run_ok(LOCKS)
    live.crash()
    code = (
        "start = multiprocessing.get_context('fork').Process\n"
        "process = start(target=lambda: free.acquire(timeout=5)); process.start()\n"
        "process.join(); process.close(); free.get_value()"
    )
    assert live.run_ok(code) == "1"


def test_a_semaphore_with_a_name_is_refused(live: LiveSession) -> None:
    """Any process can open it by its name."""
    live.run_ok(
        "import _multiprocessing\n"
        "found = [_multiprocessing.SemLock(1, 1, 1, f'/cbx{n}', False) for n in range(2)]"
    )
    with pytest.raises(CheckpointError, match=r"has a named semaphore \(2 times\)\."):
        live.checkpoint()
    live.run_ok("[_multiprocessing.sem_unlink(f'/cbx{n}') for n in range(2)]")
    live.checkpoint()
