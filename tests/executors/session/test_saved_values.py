"""What a session with threads that no fork can copy keeps: the values of its variables."""

from __future__ import annotations

import pytest

from cellblock import CheckpointError, Limits, SessionError

from .live_session import RESTORED, LiveSession, forked, open_session

CRASH = "import os; os._exit(3)"
PYTHON_THREAD = (
    "import threading\n"
    "threading.Thread(target=threading.Event().wait, name='waiter', daemon=True).start()\n"
)
NATIVE_THREAD = (
    "import ctypes\n"
    "c = ctypes.CDLL(None)\n"
    "thread = ctypes.c_ulong()\n"
    "assert c.pthread_create(ctypes.byref(thread), None, c.pause, None) == 0\n"
    "assert c.pthread_setname_np(thread, b'other-1') == 0\n"
    "del c, thread, ctypes\n"
)
DEFINITIONS = """
class Point:
    def __init__(self, x): self.x = x
    def shifted(self): return Point(self.x + step)

def counter():
    count = 0
    def raise_it():
        nonlocal count
        count += 1
        return count
    return raise_it, lambda: count

def factorial(n): return 1 if n < 2 else n * factorial(n - 1)

step = 2
point, (up, value) = Point(1), counter()
shared = [point]
same = {"shared": shared}
_private = 4
"""


def crash(live: LiveSession) -> None:
    """Run a block that ends the session, and check that at most a Python thread is lost."""
    result = live.run(CRASH)
    without_thread = (
        "The session was restored without what could not be saved: the Python thread 'waiter'. "
        "The other variables are as they were before this block."
    )
    expected = {True: RESTORED, False: without_thread}[result.session_restored]
    assert (result.lost_blocks, result.notice) == (0, expected)


@pytest.fixture(params=[PYTHON_THREAD, NATIVE_THREAD], ids=["python", "native"])
def threaded(request: pytest.FixtureRequest, live: LiveSession) -> LiveSession:
    live.run_ok("first = 1")
    live.run(request.param)
    return live


def test_only_the_block_that_starts_a_thread_says_what_changes(live: LiveSession) -> None:
    result = live.run(PYTHON_THREAD)
    assert result.notice == (
        "From now on only the values of variables can be restored, because the Python thread "
        "'waiter' cannot be copied. What cannot be pickled, such as a connection or a generator, "
        "would be lost."
    )
    assert live.run("x = 1").notice == ""
    crash(live)
    assert live.run("x").notice == ""


def test_a_restored_session_is_silent_about_threads_of_earlier_blocks(live: LiveSession) -> None:
    live.run_ok("import asyncio, threading\nended = threading.Event()")
    assert "'Thread-" in live.run("t = threading.Thread(target=ended.wait); t.start()").notice
    live.run_ok("ended.set(); t.join()")
    crash(live)
    assert live.run("await asyncio.to_thread(len, '')").notice == ""  # its thread can be ended


def test_all_variables_come_back_after_a_crash(threaded: LiveSession) -> None:
    threaded.run_ok(DEFINITIONS)
    threaded.run_ok("up(); point.x")
    crash(threaded)
    assert threaded.run_ok("first, _private, value(), up(), value()") == "(1, 4, 1, 2, 2)"
    assert threaded.run_ok("same['shared'] is shared, shared[0] is point") == "(True, True)"
    assert threaded.run_ok("isinstance(point, Point), factorial(5)") == "(True, 120)"
    threaded.run_ok("step = 10")  # functions see variables that are assigned later
    assert threaded.run_ok("point.shifted().x") == "11"
    assert threaded.run_ok("import inspect; inspect.getsource(factorial)[:13]") == "'def factorial'"
    assert threaded.run_ok("In[4], Out[4]") == "('up(); point.x', 1)"


def test_the_surroundings_come_back_after_a_crash(threaded: LiveSession) -> None:
    threaded.run_ok("import os, sys, random\nos.mkdir('inner'); os.chdir('inner')")
    threaded.run_ok("os.environ['A'] = 'b'; sys.path.append('/added'); random.seed(7)")
    threaded.run_ok("random.random()")
    drawn = threaded.run_ok("state = random.getstate(); random.random(), random.setstate(state)")
    crash(threaded)
    assert threaded.run_ok("random.random(), None") == drawn
    found = threaded.run_ok("os.path.basename(os.getcwd()), os.environ['A'], sys.path[-1]")
    assert found == "('inner', 'b', '/added')"


# Each leaves a variable `odd` that cannot be saved, or not loaded.
ODD = {
    "generator": "odd = (n for n in [1])",
    "file": "odd = open('/dev/null')",
    "thread": "import threading; odd = threading.current_thread()",
    "blocks": """
import threading
held, taken = threading.Lock(), threading.Event()
def hold(held=held, taken=taken):
    with held:
        taken.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
taken.wait()
class Blocks:
    def __reduce__(self, held=held): held.acquire(); return Blocks, ()
odd = Blocks()
del held, taken, hold, Blocks
""",
    "ends": """
class Ends:
    def __reduce__(self): import os; os._exit(1)
odd = Ends()
""",
    "refuses": """
def refuse(): raise ValueError
class Refuses:
    def __reduce__(self): return refuse, ()
odd = Refuses()
""",
}


def test_locks_and_queues_come_back_free(threaded: LiveSession) -> None:
    threaded.run_ok("import queue, threading\nlock, event = threading.RLock(), threading.Event()")
    threaded.run_ok("lock.acquire(); event.set(); q = queue.Queue(); q.put(event)")
    crash(threaded)
    assert threaded.run_ok("q.get_nowait() is event, event.is_set()") == "(True, True)"
    threaded.run_ok("lock.acquire(); lock.release()")


# The class cannot be made a second time, as those of modules that Rust makes.
ONLY_HERE = """
class Fixed(type):
    def __setattr__(self, name, value): raise TypeError(name)
class Odd(metaclass=Fixed): pass
odd = Odd()
"""
# Can be loaded here, but not in a new process.
MARKED = """
import json; json.mark = 1
def load_mark(): import json; return json.mark
class Marked:
    def __reduce__(self): return load_mark, ()
odd = Marked()
"""


@pytest.mark.parametrize("code", [*ODD.values()], ids=[*ODD])
def test_what_cannot_be_saved_is_named_and_the_rest_comes_back(
    code: str, threaded: LiveSession
) -> None:
    threaded.run_ok("before = [1]")
    threaded.run_ok(code)
    threaded.run_ok("after = before")
    result = threaded.run(CRASH)
    assert not result.session_restored
    assert "could not be saved: " in result.notice
    assert "odd (" in result.notice, result.notice
    found = threaded.run_ok("first, before, after is before, 'odd' in globals()")
    assert found == "(1, [1], True, False)"


def test_a_session_with_native_threads_has_checkpoints_and_branches(live: LiveSession) -> None:
    live.run(NATIVE_THREAD)
    live.run_ok(DEFINITIONS)
    checkpoint = live.checkpoint()
    live.run_ok("up(); step = 5; open('file', 'w').close()")
    with forked(live, 2, checkpoint=checkpoint) as earlier, forked(live, 2) as now:
        for branch in earlier:
            assert branch.run_ok("value(), step, point.shifted().x") == "(0, 2, 3)"
        for branch in now:
            assert branch.run_ok("value(), up(), step") == "(1, 2, 5)"
            branch.crash()
            assert branch.run_ok("value(), up()") == "(2, 3)"
        numbers = [branch.run_ok("import random; random.random()") for branch in now]
        assert len(set(numbers)) == 2
    assert live.executor.checkpoints == (checkpoint,)
    live.restore(checkpoint)
    assert live.run_ok("import os; value(), step, os.listdir()") == "(0, 2, [])"


def test_a_checkpoint_names_the_variable_that_it_could_not_save_or_load(live: LiveSession) -> None:
    live.run(NATIVE_THREAD)
    made_here = "import sys, types; odd = sys.modules['made_here'] = types.ModuleType('made_here')"
    for code in (ODD["generator"], ODD["refuses"], made_here, ONLY_HERE):
        live.run_ok(code)
        for copy in (live.checkpoint, live.fork):
            with pytest.raises(CheckpointError, match=r"the variable odd \("):
                copy()
    live.run_ok("del Odd, Fixed; import numbers, pathlib; odd = [pathlib.Path, numbers]")
    live.checkpoint()


def test_what_an_earlier_restore_lost_is_not_named_again(threaded: LiveSession) -> None:
    threaded.run_ok("odd = (n for n in [1])")
    assert "odd (generator)" in threaded.run(CRASH).notice
    threaded.run_ok("odd, k = (n for n in [7, 8, 9]), [1]")
    threaded.crash()
    assert threaded.run_ok("next(odd)") == "7"
    checkpoint = threaded.checkpoint()
    threaded.run_ok("next(odd); k.append(2)")
    threaded.restore(checkpoint)
    assert threaded.run_ok("next(odd), k") == "(8, [1])"
    with forked(threaded) as now, forked(threaded, checkpoint=checkpoint) as earlier:
        for branch, following in (now[0], "9"), (earlier[0], "8"):
            branch.crash()
            assert branch.run_ok("next(odd)") == following


def test_a_checkpoint_that_cannot_be_loaded_whole_says_so_each_time(live: LiveSession) -> None:
    live.run(NATIVE_THREAD)
    live.run_ok(f"kept = 1{MARKED}")
    checkpoint = live.checkpoint()
    with pytest.raises(CheckpointError, match=r"could not be loaded: odd \(Marked\)$"):
        live.fork(checkpoint=checkpoint)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"could not be loaded: odd \(Marked\)$"):
            live.restore(checkpoint)
        live.crash()
        assert live.run_ok("kept, 'odd' in globals()") == "(1, False)"
    later = live.checkpoint()
    live.restore(later)
    live.crash()


def test_what_was_lost_between_blocks_is_named_after_the_next_block(threaded: LiveSession) -> None:
    threaded.run_ok("odd = (n for n in [1])")
    threaded.run_ok(
        "class Ends:\n    def tolist(self): import os; os._exit(1)\nends = Ends(); first = 2"
    )
    with pytest.raises(SessionError, match="process ended"):
        threaded.get("ends")
    threaded.checkpoint()  # of a session that a fork can copy exactly
    result = threaded.run(CRASH)
    assert not result.session_restored
    assert "could not be saved: odd (generator)" in result.notice
    threaded.crash()
    assert threaded.run_ok("first") == "2"


def test_out_of_memory_costs_only_its_block() -> None:
    with open_session(None, limits=Limits(memory_bytes=300 << 20)) as live:
        live.run(PYTHON_THREAD)
        live.run_ok("kept = bytes(20 << 20)")
        result = live.run("more = [bytes(10 << 20) + b'x' for _ in range(100)]")
        assert result.outcome == "out_of_memory", result
        assert live.run_ok("len(kept), 'more' in globals()") == "(20971520, False)"
