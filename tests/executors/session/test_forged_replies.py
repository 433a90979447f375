"""Code of a session shares its process, and so the stream to the server: whatever it says there harms that session alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import Limits, SandboxSessionServer, SessionError
from cellblock.runtime import protocol
from tests.executors.session.live_session import server, session, wait

_GUARD = 10.0  # seconds for the end of a block; it takes a fraction of one


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    with server(limits=Limits(memory_bytes=200 << 20, processes=60)) as running:
        yield running


# Speaks for the block that runs, whichever number that has: the frames of others are passed over.
SAY = """
import os, stat, struct, subprocess, time
def say(kind, payload):
    fd = next(f for f in range(3, 2000) if os.path.exists(f'/proc/self/fd/{f}') and stat.S_ISSOCK(os.fstat(f).st_mode))
    for run in range(2000):
        os.write(fd, struct.pack('>IBI', 5 + len(payload), kind, run) + payload)
"""

ANSWERS = {
    "an exit code without end": b'{"exit": Infinity}',
    "an exit code too large for a float": b'{"exit": 1e999}',
    "an exit code that is a word": b'{"exit": "abc"}',
    "a time that is a word": b'{"exit": 0, "cpu": "x"}',
    "a time that is none": b'{"exit": 0, "cpu": NaN}',
    "a copy without a number": b'{"keepers": [Infinity]}',
    "copies that are no list": b'{"keepers": 5}',
    "obstacles that are no words": b'{"refused": [5]}',
    "an error that is no text": b'{"error": {"a": 1}}',
    "something unknown": b'{"exit": 0, "why": "memory_bytes"}',
    "a list": b"[]",
    "no JSON": b"xx",
    "depth": b'{"error": ' + b"[" * 100_000,
}


@pytest.mark.parametrize(
    "and_then", ["", "subprocess.Popen(['sleep', '100'])\n"], ids=["", "with a child that is left"]
)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_false_answer_ends_its_block_and_nothing_else(
    name: str, and_then: str, shared: SandboxSessionServer
) -> None:
    with session(shared) as victim, session(shared, timeout=_GUARD) as bad:
        victim.done("x = 42")
        bad.done(SAY)
        result = bad.run(f"{and_then}say({protocol.ANSWER}, {ANSWERS[name]!r})\nwhile True: pass")
        assert result.usage.wall_seconds < _GUARD, result
        assert result.session_restored, result
        assert bad.done("'say' in globals()") == "True"
        assert victim.done("x") == "42"


SHOWN = {
    "a display that is no JSON": (protocol.DISPLAY, b"xx"),
    "a display without data": (protocol.DISPLAY, b"{}"),
    "a display of a word": (protocol.DISPLAY, b'{"data": "ab", "metadata": {}}'),
    "a question that nobody is to answer": (protocol.INPUT, b'{"prompt": "name?"}'),
    "a value that nobody asked for": (protocol.PIECE, b"abc"),
    "a kind of the server's own": (protocol.ENDED, b"{}"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_makes_no_sense_is_not_shown(name: str, shared: SandboxSessionServer) -> None:
    kind, payload = SHOWN[name]
    with session(shared, timeout=_GUARD) as bad:
        assert bad.done(f"{SAY}\nsay({kind}, {payload!r})\nprint('printed')") == "printed"
        assert bad.done("1 + 1") == "2"


def a_line(_prompt: str) -> str:
    """Answer `input()`."""
    return "a line"


def test_a_question_that_is_no_json_ends_its_block(shared: SandboxSessionServer) -> None:
    with session(shared, timeout=_GUARD, input_callback=a_line) as bad:
        bad.done(SAY)
        result = bad.run(f"say({protocol.INPUT}, b'xx')\nwhile True: pass")
        assert (result.session_restored, result.usage.wall_seconds < _GUARD) == (True, True), result
        assert bad.done("input('name? ')") == "'a line'"


# Has the session's own code answer a question with `answer`, after as many megabytes of pieces as `pieces` says.
ANSWER = """
import sys
def control():
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            for part in (value, *getattr(value, '__dict__', {{}}).values()):
                if type(part).__name__ == 'Control': return type(part)
        frame = frame.f_back
Control, answer, pieces = control(), {answer!r}, {pieces}
send, send_frame = Control.send, Control.send_frame
def own_send_frame(self, frame):
    run = int.from_bytes(frame[5:9], 'big')
    if frame[4] == 22 and run and b'"exit"' not in frame:
        for _ in range(pieces): send(self, 24, run, bytes(1 << 20))
        frame = (5 + len(answer)).to_bytes(4, 'big') + frame[4:9] + answer
    send_frame(self, frame)
Control.send_frame = own_send_frame
x = b'xx'
"""

QUESTIONS = {
    "variables without any": ("variables", b"{}"),
    "variables that are none": ("variables", b'{"variables": 5}'),
    "variables that are incomplete": ("variables", b'{"variables": [{"name": "x"}]}'),
    "a value of no kind": ("get", b"{}"),
    "a value that is no JSON": ("get", b'{"kind": "json"}'),
    "a table that is none": ("get", b'{"kind": "arrow"}'),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_that_is_nonsense_is_an_error_of_the_session(
    name: str, shared: SandboxSessionServer
) -> None:
    question, answer = QUESTIONS[name]
    with session(shared, timeout=_GUARD) as bad:
        bad.done(ANSWER.format(answer=answer, pieces=0))
        with pytest.raises(SessionError):
            _ = bad.get("x") if question == "get" else wait(bad.executor.variables())


def test_a_value_that_is_larger_than_its_session_is_not_taken_in(
    shared: SandboxSessionServer,
) -> None:
    with session(shared, timeout=60) as bad:
        bad.done(ANSWER.format(answer=b'{"kind": "bytes"}', pieces=300))
        with pytest.raises(SessionError):
            bad.get("x")
        bad.done("Control.send_frame = send_frame\ny = bytes(50 << 20)")
        assert len(bad.get("y")) == 50 << 20
