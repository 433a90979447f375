"""Code of a live session calls functions of this process: what it can do, and what it cannot."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import enum
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from pydantic import BaseModel

from cellblock.aio.background_loop import background_loop
from cellblock.integrations.host_functions import BlockEnded, FunctionBlock, FunctionSession
from cellblock.integrations.stopping import until_stopped
from cellblock.sandbox.probe import unavailable_reason
from tests.suite.tiers import exhaustive

user = contextvars.ContextVar("user", default="nobody")


def add(first: int, second: int = 1) -> int:
    return first + second


def fail() -> None:
    raise LookupError("there is no such city")


def finish(value: object) -> None:
    raise BlockEnded(value)


async def later() -> str:
    return "later"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def session() -> Iterator[FunctionSession]:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    session = FunctionSession(timeout=60)
    session.functions = {
        "add": add,
        "fail": fail,
        "finish": finish,
        "later": later,
        "host_id": os.getpid,
        "user": user.get,
        "size": len,
        "repeat": str.__mul__,
        "no_json": object,
    }
    yield session
    background_loop().run(session.stop())


def run(session: FunctionSession, code: str) -> FunctionBlock:
    return background_loop().run(session.run(code))


def output(session: FunctionSession, code: str) -> str:
    return run(session, code).result.output.rstrip("\n")


def test_functions_run_in_this_process(session: FunctionSession) -> None:
    assert output(session, "print(add(2), add(2, second=3), later())") == "3 5 later"
    assert run(session, "host_id()").value == os.getpid()
    assert output(session, "import os; print(host_id() == os.getpid())") == "False"


def test_a_function_has_the_context_of_the_caller(session: FunctionSession) -> None:
    token = user.set("me")
    try:
        assert run(session, "user()").value == "me"
    finally:
        user.reset(token)
    assert run(session, "user()").value == "nobody"


def test_an_error_of_a_function_is_an_error_of_the_code(session: FunctionSession) -> None:
    code = "try:\n    fail()\nexcept RuntimeError as error:\n    print(error)"
    assert output(session, code) == "LookupError: there is no such city"


def test_a_function_can_end_the_block(session: FunctionSession) -> None:
    code = "try:\n    print(1)\n    finish([1, None])\nexcept Exception:\n    pass\nprint(2)"
    block = run(session, code)
    assert block.end is not None
    assert block.end.value == [1, None]
    assert (block.result.exit_code, block.result.output) == (0, "1\n")
    assert run(session, "3").end is None


def test_threads_of_the_code_call_functions(session: FunctionSession) -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n    print(sum(pool.map(add, range(50))))"
    )
    assert output(session, code) == str(sum(range(51)))


class Person(BaseModel):
    name: str
    born: datetime.date


@dataclasses.dataclass
class Pair:
    first: object
    second: object


class Point(NamedTuple):
    x: int
    y: int


class Kind(enum.Enum):
    GOOD = "good"


VALUES = Pair([Person(name="Ada", born=datetime.date(1815, 12, 10)), Point(1, 2)], {3, 1, 2})
PLAIN = "[{'name': 'Ada', 'born': '1815-12-10'}, {'x': 1, 'y': 2}], 'second': [1, 2, 3]"
IN_SANDBOX = """
import collections, dataclasses, datetime, enum, pathlib
@dataclasses.dataclass
class Pair:
    first: object
    second: object
class Kind(enum.Enum):
    GOOD = "good"
Point = collections.namedtuple("Point", "x y")
taken = keep(Pair(Point(1, 2), frozenset({3, 1, 2})), kind=Kind.GOOD, at=datetime.date(2026, 1, 2))
print(taken, keep({"a": (pathlib.Path("/x"), {1, "a"} - {1})}))
"""


def test_objects_with_fields_and_sets_cross_both_ways(session: FunctionSession) -> None:
    kept: list[object] = []

    def keep(*args: object, **options: object) -> object:
        kept.append((*args, options))
        return VALUES if options else {Kind.GOOD}

    session.functions["keep"] = keep
    assert output(session, IN_SANDBOX) == f"{{'first': {PLAIN}}} ['good']"
    assert kept == [
        ({"first": {"x": 1, "y": 2}, "second": [1, 2, 3]}, {"kind": "good", "at": "2026-01-02"}),
        ({"a": ["/x", ["a"]]}, {}),
    ]
    background_loop().run(session.set("given", VALUES))
    assert output(session, "print(given)") == f"{{'first': {PLAIN}}}"


CANNOT_CROSS = {
    "add(object())": "object objects cannot leave the sandbox. Pass text, numbers, ",
    "no_json()": "Object of type object is not JSON serializable",
    "repeat('x', 17_000_000)": "The result is larger than 16777216 bytes.",
}


def test_what_cannot_cross_is_an_error_of_the_code(session: FunctionSession) -> None:
    for call, error in CANNOT_CROSS.items():
        assert error in output(session, call)
        assert output(session, "print(add(1))") == "2"


def test_large_arguments_and_arrays_cross(session: FunctionSession) -> None:
    assert run(session, "size('x' * 10_000_000)").value == 10_000_000
    assert run(session, "import array; size(array.array('i', [1, 2]))").value == 2


def test_a_function_that_was_replaced_by_the_code_is_back_in_the_next_block(
    session: FunctionSession,
) -> None:
    run(session, "add = print = exec = globals = None")
    assert run(session, "del print, exec, globals\nadd(1)").value == 2


# What hostile code can send: it knows the marker, which is in its memory.
REQUESTS = [
    *("['__class__', [], {}]", "['eval', ['1'], {}]", "['add']", "['add', 'ab', {}]"),
    *("['add', [1], [2]]", "[['add'], [1], {}]", "{'add': 1}", "None"),
]


def test_only_calls_of_known_functions_are_answered(session: FunctionSession) -> None:
    ask = f"import builtins, json\nprint(builtins.input({session._marker!r} + json.dumps(%s)))"
    answers = {request: output(session, ask % request) for request in REQUESTS}
    answer = '{"error": "ValueError: There is no such function."}'
    assert answers == dict.fromkeys(REQUESTS, answer)


def test_text_that_is_no_json_is_an_error(session: FunctionSession) -> None:
    assert "JSONDecodeError" in output(session, f"print(input({session._marker!r} + '[' * 9))")


def test_input_of_the_code_fails(session: FunctionSession) -> None:
    with pytest.raises(EOFError, match="not available here"):
        run(session, "input('name? ')")
    assert run(session, "add(1)").value == 2


@pytest.mark.usefixtures("session")
def test_time_of_a_function_is_not_time_of_the_block() -> None:
    other = FunctionSession(timeout=2)
    other.functions = {"wait": lambda: threading.Event().wait(2.5)}
    try:
        assert run(other, "wait()").value is False
    finally:
        background_loop().run(other.stop())


def test_the_value_of_a_block_is_that_of_its_last_expression(session: FunctionSession) -> None:
    for code, value, printed in (
        ("for _ in range(3):\n    print(_)\n'text'", "text", "0\n1\n2\n"),
        ("{'a': (1, 2)}", {"a": [1, 2]}, ""),
        ("object", "object", ""),
        ("print('only')", None, "only\n"),
    ):
        block = run(session, code)
        assert (block.value, block.printed) == (value, printed)


async def cancel(task: asyncio.Task[FunctionBlock], event: threading.Event) -> None:
    """Cancel a block once `event` is set, and wait for what the caller of the block waits for."""
    await asyncio.to_thread(event.wait)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


class Counter:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.count, self.was_called = 0, threading.Event()

    def __call__(self) -> int:
        self.count += 1
        if self.count == 3:
            self.was_called.set()
        return self.count


CATCHES_ALL = "while True:\n    try:\n        count()\n    except BaseException:\n        pass"


@pytest.mark.anyio
@pytest.mark.parametrize("code", exhaustive(["while True: count()", CATCHES_ALL]))
async def test_after_a_cancel_no_function_is_called(code: str, session: FunctionSession) -> None:
    counter = session.functions["count"] = Counter()
    await cancel(asyncio.create_task(session.run(code)), counter.was_called)
    called = counter.count
    assert (await session.run("add(1)")).value == 2  # calls that were under way would come before
    assert counter.count == called


@pytest.mark.anyio
async def test_a_function_that_is_awaited_has_ended_when_a_cancel_returns(
    session: FunctionSession,
) -> None:
    began, ends = threading.Event(), list[str]()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("ended")

    session.functions["wait_for_long"] = wait
    await cancel(asyncio.create_task(session.run("wait_for_long()")), began)
    assert ends == ["ended"]


@pytest.mark.anyio
async def test_a_plain_function_that_runs_has_ended_when_a_cancel_returns(
    session: FunctionSession,
) -> None:
    began, may_end, ends = threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        began.set()
        may_end.wait()
        ends.append("ended")

    session.functions["hold"] = hold
    cancelling = asyncio.create_task(cancel(asyncio.create_task(session.run("hold()")), began))
    await asyncio.to_thread(began.wait)
    asyncio.get_running_loop().call_later(0.1, may_end.set)
    await cancelling
    assert ends == ["ended"]


@pytest.mark.anyio
async def test_a_block_ends_at_a_flag_with_the_block_that_its_function_runs(
    session: FunctionSession,
) -> None:
    inner, counter, flag = FunctionSession(timeout=60), Counter(), threading.Event()
    inner.functions = {"count": counter}
    session.functions["run_inner"] = lambda: run(inner, "while True: count()").result.output
    outer = until_stopped(session.run("run_inner()", flag.is_set), flag.is_set)
    running = asyncio.create_task(outer)
    await asyncio.to_thread(counter.was_called.wait)
    flag.set()
    called = counter.count
    await asyncio.wait([running])
    assert running.cancelled()
    assert counter.count <= called + 1  # one may have been about to begin
    await inner.stop()
