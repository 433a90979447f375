"""Code in a session can write to the session's stream. Forged messages only harm that session."""

from __future__ import annotations

import pytest

from cellblock import SandboxSessionServer, SessionError
from cellblock.runtime import protocol
from tests.executors.session.live_session import open_session, run_async

_MAX_SECONDS = 40.0  # within which a block must end; it takes a fraction of a second


@pytest.fixture
def shared(strict_server: SandboxSessionServer) -> SandboxSessionServer:
    return strict_server


# Sends a frame for the running block. Its number is unknown, so it tries all: others are ignored.
SEND_FORGED_FRAME = """
import os, stat, struct, subprocess, time
def say(kind, payload):
    fds = [f for f in range(3, 2000) if os.path.exists(f'/proc/self/fd/{f}')]
    fd = next(f for f in fds if stat.S_ISSOCK(os.fstat(f).st_mode))
    for run in range(2000):
        os.write(fd, struct.pack('>IBI', 5 + len(payload), kind, run) + payload)
"""

ANSWERS = {
    "an infinite exit code": b'{"exit": Infinity}',
    "an exit code too large for a float": b'{"exit": 1e999}',
    "an exit code that is a string": b'{"exit": "abc"}',
    "a time that is a string": b'{"exit": 0, "cpu": "x"}',
    "a time that is not a number": b'{"exit": 0, "cpu": NaN}',
    "a checkpoint with an invalid process ID": b'{"checkpoint_pids": [Infinity]}',
    "checkpoints that are not a list": b'{"checkpoint_pids": 5}',
    "obstacles that are not strings": b'{"refused": [5]}',
    "an error that is not a string": b'{"error": {"a": 1}}',
    "an unknown key": b'{"exit": 0, "why": "memory_bytes"}',
    "a list": b"[]",
    "invalid JSON": b"xx",
    "deeply nested JSON": b'{"error": ' + b"[" * 100_000,
}


@pytest.mark.parametrize(
    "and_then", ["", "subprocess.Popen(['sleep', '100'])\n"], ids=["", "with a leftover child"]
)
def test_a_forged_answer_only_ends_its_own_block(
    and_then: str, shared: SandboxSessionServer
) -> None:
    with open_session(shared) as victim, open_session(shared, timeout=_MAX_SECONDS) as bad:
        victim.run_ok("x = 42")
        bad.run_ok(SEND_FORGED_FRAME)
        for name, answer in ANSWERS.items():
            result = bad.run(
                f"{and_then}say({protocol.SESSION_REPLY}, {answer!r})\nwhile True: pass"
            )
            assert result.usage.wall_seconds < _MAX_SECONDS, (name, result)
            assert result.session_restored, (name, result)
            assert bad.run_ok("'say' in globals()") == "True", name
            assert victim.run_ok("x") == "42", name


INVALID_DISPLAYS = {
    "a display that is not JSON": (protocol.DISPLAY, b"xx"),
    "a display without data": (protocol.DISPLAY, b"{}"),
    "a display whose data is a string": (protocol.DISPLAY, b'{"data": "ab", "metadata": {}}'),
    "an input request without a callback": (protocol.INPUT_REQUEST, b'{"prompt": "name?"}'),
    "a value that was not requested": (protocol.VALUE_CHUNK, b"abc"),
    "a frame kind reserved for the server": (protocol.ENDED, b"{}"),
}


def test_an_invalid_display_is_not_shown(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=_MAX_SECONDS) as bad:
        bad.run_ok(SEND_FORGED_FRAME)
        for name, (kind, payload) in INVALID_DISPLAYS.items():
            result = bad.run(f"say({kind}, {payload!r})\nprint('printed')")
            assert (result.stdout, result.displays) == ("printed\n", []), name
            dropped = "A display was dropped because it is not valid JSON.\n"
            assert result.stderr in ("", dropped), name
            assert bad.run_ok("1 + 1") == "2", name


def answer_input(_prompt: str) -> str:
    """Return the answer to `input()`."""
    return "a line"


def test_an_input_request_that_is_not_json_ends_its_block(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=_MAX_SECONDS, input_callback=answer_input) as bad:
        bad.run_ok(SEND_FORGED_FRAME)
        result = bad.run(f"say({protocol.INPUT_REQUEST}, b'xx')\nwhile True: pass")
        assert result.session_restored, result
        assert result.usage.wall_seconds < _MAX_SECONDS
        assert bad.run_ok("input('name? ')") == "'a line'"


# Makes the session reply to a request with `answer`, after `pieces` chunks of one megabyte.
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
send_frame = Control.send_frame
def own_send_frame(self, frame):
    run = int.from_bytes(frame[5:9], 'big')
    if frame[4] == 22 and run and b'"exit"' not in frame:
        piece = (5 + (1 << 20)).to_bytes(4, 'big') + bytes([24]) + frame[5:9] + bytes(1 << 20)
        for _ in range(pieces): send_frame(self, piece)
        frame = (5 + len(answer)).to_bytes(4, 'big') + frame[4:9] + answer
    send_frame(self, frame)
Control.send_frame = own_send_frame
x = b'xx'
"""

INVALID_ANSWERS = {
    "a reply without variables": ("variables", b"{}"),
    "variables that are not a list": ("variables", b'{"variables": 5}'),
    "variables that are incomplete": ("variables", b'{"variables": [{"name": "x"}]}'),
    "a value without a kind": ("get", b"{}"),
    "completions without a start": ("complete", b'{"matches": []}'),
    "completions that are numbers": ("complete", b'{"start": 0, "matches": [1]}'),
    "a value that is not JSON": ("get", b'{"kind": "json"}'),
    "an invalid table": ("get", b'{"kind": "arrow"}'),
}


def test_an_invalid_answer_raises_session_error(shared: SandboxSessionServer) -> None:
    accepted = list[str]()
    for name, (question, answer) in INVALID_ANSWERS.items():
        with open_session(shared, timeout=_MAX_SECONDS) as bad:
            bad.run_ok(ANSWER.format(answer=answer, pieces=0))
            ask = {
                "get": lambda: bad.executor.get("x"),
                "complete": lambda: bad.executor.complete("x"),
                "variables": bad.executor.variables,
            }
            try:
                run_async(ask[question]())
            except SessionError:
                continue
            accepted.append(name)
    assert accepted == []


@pytest.mark.slow
def test_a_value_larger_than_its_session_is_not_read(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared, timeout=_MAX_SECONDS) as bad:
        bad.run_ok(ANSWER.format(answer=b'{"kind": "bytes"}', pieces=260))
        with pytest.raises(SessionError):
            bad.get("x")
        bad.run_ok("Control.send_frame = send_frame\ny = bytes(20 << 20)")
        assert len(bad.get("y")) == 20 << 20
