"""asyncio in the blocks of a session: a running loop as in ipykernel; tasks, also in copies."""

from __future__ import annotations

import pytest

from cellblock import CancellationToken, CodeBlock, Event, Output, SandboxSessionServer, fold
from tests.executors.session.live_session import (
    LiveSession,
    forked,
    open_session,
    run_async,
)

COUNTER = """import asyncio
seen = []
async def count(number, gate):
    for n in range(number):
        seen.append(n)
        await gate.wait()
    return number
gate = asyncio.Event()
async def main():
    await asyncio.sleep(0)
    return 'ran'
"""

# blocks without `await`, and what they show

TOP_LEVEL = {
    "create_task": ("task = asyncio.create_task(count(1, gate)); len(asyncio.all_tasks())", "1"),
    "ensure_future": ("future = asyncio.ensure_future(count(1, gate)); future.done()", "False"),
    "a loop that runs": ("asyncio.get_running_loop() is asyncio.get_event_loop()", "True"),
    "the loop of the policy": (
        "asyncio.get_event_loop_policy().get_event_loop() is asyncio.get_running_loop()",
        "True",
    ),
    "aiohttp's session": (
        "import aiohttp; client = aiohttp.ClientSession(); client.closed",
        "False",
    ),
    "call_soon": ("called = []; _ = asyncio.get_running_loop().call_soon(called.append, 1)", ""),
    "asyncio.run": ("asyncio.run(main())", "'ran'"),
    "a runner": ("with asyncio.Runner() as runner: print(runner.run(main()))", "ran"),
    "run_until_complete": ("asyncio.get_event_loop().run_until_complete(main())", "'ran'"),
    "a new loop": ("asyncio.new_event_loop().run_until_complete(main())", "'ran'"),
    "a loop that is set": (
        "loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop)\n"
        "asyncio.get_event_loop().run_until_complete(loop.create_task(main()))",
        "'ran'",
    ),
    "a loop that is closed": (
        "loop = asyncio.get_event_loop(); loop.run_until_complete(main()); loop.close()",
        "",
    ),
    "anyio": ("import anyio; anyio.run(main)", "'ran'"),
    "another thread": (
        "from threading import Thread\nresults = []\n"
        "thread = Thread(target=lambda: results.append(asyncio.run(main())))\n"
        "thread.start(); thread.join(); results",
        "['ran']",
    ),
    "a thread of a pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as pool: print(pool.submit(asyncio.run, main()).result())",
        "ran",
    ),
    "a forked process": (
        "import multiprocessing\ndef work(_): return asyncio.run(main())\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(work, [1]))",
        "['ran']",
    ),
    "a script": (
        "open('script.py', 'w').write('import asyncio\\nasync def script(): print(\"ran\")\\n"
        "asyncio.run(script())'); None\n%run script.py",
        "ran",
    ),
}


def test_a_block_without_await_uses_the_running_loop_or_its_own(live: LiveSession) -> None:
    pytest.importorskip("aiohttp")
    live.run_ok(COUNTER)
    for name, (code, shown) in TOP_LEVEL.items():
        assert live.run_ok(code) == shown, name
        # Whatever it did, the next block has a loop that runs, and can await in it.
        made = live.run_ok("later = asyncio.create_task(main()); type(later).__name__")
        assert made == "'Task'", name
        assert live.run_ok("await later") == "'ran'", name
        assert live.run_ok("asyncio.run(main())") == "'ran'", name


def test_loops_that_are_made_to_nest_still_run(live: LiveSession) -> None:
    pytest.importorskip("nest_asyncio2")
    live.run_ok(COUNTER)
    live.run_ok("import nest_asyncio2 as nest; nest.apply()")
    assert live.run_ok("asyncio.run(main())") == "'ran'"
    assert live.run_ok("await main(), asyncio.run(main())") == "('ran', 'ran')"
    assert live.run_ok("task = asyncio.create_task(main())\nawait task") == "'ran'"


def test_asyncio_run_beside_an_await_is_the_error_of_a_notebook(live: LiveSession) -> None:
    live.run_ok(COUNTER)
    result = live.run("await main()\nasyncio.run(main())")
    assert "cannot be called from a running event loop" in result.stderr
    assert live.run_ok("asyncio.run(main())") == "'ran'"


def test_objects_of_one_block_are_awaited_in_the_next(live: LiveSession) -> None:
    live.run_ok(COUNTER + "queue, lock = asyncio.Queue(), asyncio.Lock()")
    live.run_ok("async def fill():\n    await gate.wait()\n    await queue.put('item')")
    live.run_ok("filling = asyncio.create_task(fill())")
    live.run_ok("gate.set()")
    assert live.run_ok("async with lock: print(await queue.get(), filling.done())") == "item True"


def test_a_task_goes_on_at_the_end_of_its_block_and_in_later_blocks(live: LiveSession) -> None:
    live.run_ok(COUNTER)
    live.run_ok("task = asyncio.create_task(count(2, gate))")
    assert live.run_ok("seen") == "[0]"
    live.run_ok("gate.set()")
    assert live.run_ok("seen, task.result()") == "([0, 1], 2)"


def test_a_task_prints_into_the_block_that_started_it(live: LiveSession) -> None:
    live.run_ok("import asyncio\nasync def tell():\n    print('told')\n    await asyncio.sleep(0)")
    assert live.run_ok("task = asyncio.create_task(tell())") == "told"


def test_a_timer_that_ended_between_blocks_counts_before_the_next(live: LiveSession) -> None:
    live.run_ok("import asyncio\nnap = asyncio.create_task(asyncio.sleep(1e-6, 'slept'))")
    assert live.run_ok("nap.result()") == "'slept'"


def test_a_task_that_exits_ends_the_block(live: LiveSession) -> None:
    live.run_ok("import asyncio, sys\nasync def leave(): sys.exit(3)")
    assert live.run("first = asyncio.create_task(leave())").exit_code == 3
    live.run_ok(
        "async def leave_later(seconds):\n    await asyncio.sleep(seconds)\n    sys.exit(4)\n"
        "second = asyncio.create_task(leave_later(1e-6))"
    )
    assert live.run_ok("ran = 1; print(ran)") == "1"
    assert live.run("third = asyncio.create_task(leave_later(0.01))\nawait third").exit_code == 4
    assert live.run_ok("ran") == "1"


def test_a_block_that_stops_its_loop_does_not_go_on_later(live: LiveSession) -> None:
    code = (
        "import asyncio\nlater = []\nasyncio.get_running_loop().stop()\nawait asyncio.sleep(0.01)"
    )
    result = live.run(code + "\nlater.append(1)")
    assert "Event loop stopped" in result.stderr
    assert live.run_ok("await asyncio.sleep(0.05); later") == "[]"


def test_a_loop_whose_descriptors_are_closed_is_replaced(live: LiveSession) -> None:
    live.run_ok(COUNTER + "task = asyncio.create_task(count(2, gate), name='counting')")
    result = live.run("import os; os.closerange(3, 400)")
    assert "The event loop was replaced because it failed" in result.stderr
    assert "the asyncio task 'counting'" in result.stderr
    assert result.outcome == "ok"
    assert live.run_ok("new = asyncio.create_task(main())\nawait new") == "'ran'"


def test_the_first_use_of_the_loop_can_be_to_set_it_up(live: LiveSession) -> None:
    live.run_ok("import asyncio; loop = asyncio.get_running_loop(); found = []")
    live.run_ok("loop.set_exception_handler(lambda loop, context: found.append(context))")
    live.run_ok("loop.slow_callback_duration = 5; loop.set_debug(True)")
    live.run_ok("await asyncio.sleep(0); loop.call_exception_handler({'message': 'it failed'})")
    assert live.run_ok("found, loop.slow_callback_duration") == "([{'message': 'it failed'}], 5)"


def test_a_program_that_a_block_awaits_runs_in_its_loop(live: LiveSession) -> None:
    live.run_ok("import asyncio; from asyncio.subprocess import PIPE, create_subprocess_exec")
    code = "program = await create_subprocess_exec('echo', 'said', stdout=PIPE)"
    assert live.run_ok(f"{code}\nawait program.communicate()") == r"(b'said\n', None)"


def test_a_thread_that_has_waited_for_a_program_does_not_prevent_copies(live: LiveSession) -> None:
    """asyncio of Python 3.11 has one for each program, which ends later on a busy machine."""
    live.run_ok("import asyncio, threading, time; generator = iter([1, 2])")
    live.run_ok("loop = asyncio.get_running_loop(); call = loop.call_soon_threadsafe")
    slow = "threading.current_thread() is threading.main_thread() or time.sleep(0.3)"
    live.run_ok(f"loop.call_soon_threadsafe = lambda *given: (call(*given), {slow})")
    code = "program = await asyncio.create_subprocess_exec('true')\nawait program.wait()"
    assert live.run_ok(code) == "0"
    live.run("import os; os._exit(1)")
    assert live.run_ok("next(generator)") == "1"


# stops, limits and input

HANGS = {
    "a sleep": "await asyncio.sleep(600)\nafter.append(1)",
    "a task": "task = asyncio.create_task(asyncio.sleep(600))\nawait task\nafter.append(1)",
    "a loop": "await asyncio.sleep(0)\nwhile True: pass",
    "asyncio.run": "asyncio.run(asyncio.sleep(600))\nafter.append(1)",
    "run_until_complete": (
        "async def wait():\n    await asyncio.sleep(600)\n    after.append(1)\n"
        "asyncio.get_event_loop().run_until_complete(wait())"
    ),
    "a task that blocks": (
        "async def block():\n    while True: pass\ntask = asyncio.create_task(block())"
    ),
}


def test_a_stop_ends_a_block_that_waits_and_loses_nothing(live: LiveSession) -> None:
    async def run_and_stop(code: str) -> list[Event]:
        token, seen = CancellationToken(), list[Event]()
        block = CodeBlock(f"print('here', flush=True)\n{code}", "python")
        async for event in live.executor.execute_stream([block], token):
            seen.append(event)
            if isinstance(event, Output) and not token.is_cancelled():
                token.cancel()
        return seen

    for name, code in HANGS.items():
        live.run_ok(COUNTER + "after, kept = [], asyncio.create_task(count(2, gate))")
        result = fold(run_async(run_and_stop(code)))
        found = (result.outcome, result.notice, result.stderr)
        assert found == ("cancelled", "", ""), name
        # What was interrupted does not go on. Other tasks do.
        goes_on = "gate.set()\nawait asyncio.sleep(0)\nawait kept, after"
        assert live.run_ok(goes_on) == "(2, [])", name


def test_the_time_limit_ends_a_block_that_waits(hurried: LiveSession) -> None:
    assert hurried.run("import asyncio\nawait asyncio.sleep(600)").outcome == "timeout"
    assert hurried.run_ok("1") == "1"


def test_a_block_that_awaits_asks_for_input(shared: SandboxSessionServer) -> None:
    async def answer(prompt: str) -> str:
        return f"<{prompt}>"

    with open_session(shared, input_callback=answer) as live:
        code = "import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, input('name'))"
        assert live.run_ok(code) == "'<name>'"
        task = "async def ask(): print(input('task'))\ntask = asyncio.create_task(ask())"
        assert live.run_ok(task) == "<task>"


# copies

TASKS = COUNTER + (
    "queue = asyncio.Queue()\n"
    "async def double():\n    while True: seen.append(2 * await queue.get())\n"
    "doubling = asyncio.create_task(double())\nnap = asyncio.create_task(asyncio.sleep(1e-6))"
)
GO_ON = "await nap; await queue.put({0}); await asyncio.sleep(0); await asyncio.sleep(0); seen"


def test_tasks_live_on_after_a_crash(live: LiveSession) -> None:
    live.run_ok(TASKS)
    live.crash()
    assert live.run_ok(GO_ON.format(4)) == "[8]"
    live.crash()
    assert live.run_ok(GO_ON.format(5)) == "[8, 10]"


def test_checkpoints_and_branches_have_the_tasks(live: LiveSession) -> None:
    live.run_ok(TASKS)
    checkpoint = live.checkpoint()
    with forked(live, 2, checkpoint) as branches:
        assert [b.run_ok(GO_ON.format(n)) for n, b in enumerate(branches)] == ["[0]", "[2]"]
        assert live.run_ok(GO_ON.format(9)) == "[18]"
        with forked(live) as (branch,):
            assert branch.run_ok(GO_ON.format(1)) == "[18, 2]"
    live.restore(checkpoint)
    assert live.run_ok(GO_ON.format(3)) == "[6]"
    assert live.run_ok("import threading; threading.active_count()") == "1"


def test_a_copy_has_readers_and_wakes_from_other_threads(live: LiveSession) -> None:
    live.run_ok(
        "import asyncio, os\nreader, writer = os.pipe()\nread = []\n"
        "asyncio.get_running_loop().add_reader(reader, lambda: read.append(os.read(reader, 9)))"
    )
    live.run("os._exit(3)")
    live.run_ok("os.write(writer, b'x')")
    assert live.run_ok("read") == "[b'x']"
    assert live.run_ok("await asyncio.to_thread(len, 'four')") == "4"


def test_tasks_that_a_restore_by_values_loses_are_named(shared: SandboxSessionServer) -> None:
    pytest.importorskip("cloudpickle")
    with open_session(shared) as live:
        live.run_ok("import threading\nthreading.Thread(target=threading.Event().wait).start()")
        live.run_ok("import asyncio\nx = 1\ntask = asyncio.create_task(asyncio.sleep(600))")
        task = live.run_ok("task.get_name()").strip("'")
        result = live.run("import os; os._exit(3)")
        assert f"the asyncio task {task!r}" in result.notice, result
        assert live.run_ok("x") == "1"
        assert live.run_ok("asyncio.create_task(asyncio.sleep(0)); await asyncio.sleep(0)") == ""


def test_a_session_without_asyncio_opens_no_descriptors_for_it(live: LiveSession) -> None:
    count = "import os; len(os.listdir('/proc/self/fd'))"
    before = live.run_ok(count)
    live.run_ok("import asyncio; asyncio.get_running_loop(); loop = asyncio.get_event_loop()")
    assert live.run_ok(count) == before
    live.run_ok("_ = asyncio.get_running_loop().call_soon(print)")
    assert live.run_ok(count) != before


def test_blocks_see_one_loop(live: LiveSession) -> None:
    live.run_ok("import asyncio; first = asyncio.get_running_loop()")
    assert live.run_ok("await asyncio.sleep(0); asyncio.get_running_loop() is first") == "True"
