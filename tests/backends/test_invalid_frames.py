"""Whatever a runtime server sends becomes events, or is reported as the loss of that server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellblock import BackendError, BackendLost, CellblockError, Ended, Event, Limits
from cellblock.backends.connection import start_server
from cellblock.executors.frame_decoder import FrameDecoder
from cellblock.runtime import protocol
from cellblock.runtime.handshake import CellJob
from cellblock.runtime.messages import Answer, RunRequest, RunTerms, TenantSpec, check_reply
from cellblock.runtime.session_orders import ListVariables

# A server that sends what its environment says: after its specification, and after a request.
SERVER = """
import os, sys
read = lambda: sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "big"))[5:]
def send(data): sys.stdout.buffer.write(bytes.fromhex(data)); sys.stdout.buffer.flush()
read()
send(os.environ["FIRST"])
read()
send(os.environ["REPLY"])
sys.stdin.buffer.read()
"""
SPEC = TenantSpec()
READY = protocol.encode(protocol.READY, 0, b"{}")
ENDING: dict[str, Any] = {"status": 0, "why": None, "wall": 1, "cpu": 1, "peak": 1, "queued": 0}
END = protocol.encode_json(protocol.ENDED, 1, ENDING)
ANSWER = protocol.encode_json(protocol.SESSION_REPLY, 1, {})
NAMES = "READY STDOUT STDERR TRUNCATED ENDED FAILED PONG SESSION_REPLY DISPLAY VALUE_CHUNK"
KINDS = st.sampled_from(
    [*(vars(protocol)[name] for name in NAMES.split()), protocol.INPUT_REQUEST, 99]
)
FIELDS = st.sampled_from(
    "status why wall cpu peak queued code_ctime_ns session lost obstacles error stdout stderr file"
    " module python data metadata prompt kind variables refused missing".split()
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 127, 9, 1 << 16])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
WORDS = st.sampled_from(["restored", "new", "kept", "wall_seconds", "memory_bytes", "json"])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=6,
)
# Often all fields of an ending, with some of them replaced.
OBJECTS = st.dictionaries(FIELDS, VALUES, max_size=6)
PAYLOADS = (OBJECTS | OBJECTS.map(lambda fields: {**ENDING, **fields}) | VALUES).map(
    lambda value: json.dumps(value).encode()
) | st.binary(max_size=20)
FRAMES = st.tuples(KINDS, st.sampled_from([0, 1, 1, 1, 2]), PAYLOADS)


async def run_block(first: bytes, reply: bytes) -> list[Event]:
    """Return the events of a block on a server that sends `first`, and `reply` to the block."""
    connection = await start_server(
        SERVER, SPEC, environment={"FIRST": first.hex(), "REPLY": reply.hex()}
    )
    try:
        decoder = FrameDecoder(0, Limits.unlimited())
        request = RunRequest(CellJob(argv=("true",)))
        return [event async for frame in connection.run(request) for event in decoder.decode(frame)]
    finally:
        await connection.close()


async def ask_session(reply: bytes) -> Answer:
    connection = await start_server(
        SERVER, SPEC, environment={"FIRST": READY.hex(), "REPLY": reply.hex()}
    )
    try:
        return (await connection.request(ListVariables(1, RunTerms())))[0]
    finally:
        await connection.close()


def test_valid_messages_are_accepted() -> None:
    *_, last = asyncio.run(run_block(READY, END))
    assert isinstance(last, Ended)
    assert (last.exit_code, last.usage.wall_seconds) == (0, 1)
    assert asyncio.run(ask_session(ANSWER)) == Answer()


INVALID: list[tuple[int, dict[str, Any]]] = [
    (protocol.ENDED, {}),
    *((protocol.ENDED, {**ENDING, name: "text"}) for name in ("status", "wall", "peak")),
    (protocol.ENDED, {**ENDING, "wall": float("nan")}),
    (protocol.ENDED, {**ENDING, "cpu": 10**400}),
    (protocol.ENDED, {**ENDING, "status": 127}),  # stopped, not ended
    (protocol.ENDED, {**ENDING, "session": "restored", "lost": "text"}),
    (protocol.TRUNCATED, {}),
    (protocol.TRUNCATED, {"stdout": "text", "stderr": 0}),
    (protocol.FAILED, {"error": 1}),
    (protocol.SESSION_REPLY, {}),
]


async def test_wrong_messages_are_the_loss_of_the_server() -> None:
    wrong_answer = protocol.encode(protocol.SESSION_REPLY, 1, b'{"variables": [{}]}')
    calls: dict[str, Coroutine[Any, Any, object]] = {
        **{
            str(each): run_block(READY, protocol.encode_json(each[0], 1, each[1]) + END)
            for each in INVALID
        },
        "a second READY": run_block(READY, READY + END),
        "the end of a block as an answer": ask_session(END),
        "a wrong answer": ask_session(wrong_answer),
    }
    results = await asyncio.gather(*calls.values(), return_exceptions=True)
    faults = [
        (name, result)
        for name, result in zip(calls, results, strict=True)
        if not (isinstance(result, BackendLost) and "invalid message" in str(result))
    ]
    assert faults == []


def test_invalid_ready_is_a_failed_start() -> None:
    with pytest.raises(BackendError, match="invalid message"):
        asyncio.run(run_block(protocol.encode_json(protocol.READY, 0, {"python": 3}), b""))


def test_only_the_first_end_of_a_block_counts() -> None:
    failed = protocol.encode_json(protocol.FAILED, 1, {"error": "late"})
    events = asyncio.run(run_block(READY, END + END + failed))
    assert [type(event) for event in events] == [Ended]


@settings(max_examples=30)
@given(st.lists(FRAMES, max_size=4), st.lists(FRAMES, max_size=1))
def test_any_frames_lead_to_events_or_to_the_loss_of_the_server(
    reply: list[tuple[int, int, bytes]], first: list[tuple[int, int, bytes]]
) -> None:
    def encoded(frames: list[tuple[int, int, bytes]]) -> bytes:
        return b"".join(protocol.encode(*frame) for frame in frames)

    try:
        events = asyncio.run(run_block(encoded(first) + READY, encoded(reply) + END))
    except CellblockError:
        return
    assert sum(isinstance(event, Ended) for event in events) == 1


@given(st.lists(FRAMES, max_size=4))
def test_frames_with_valid_fields_are_decoded(frames: list[tuple[int, int, bytes]]) -> None:
    decoder = FrameDecoder(0, Limits.unlimited())
    for frame in (protocol.Frame(*parts) for parts in frames):
        try:
            check_reply(frame)
        except protocol.ProtocolError:
            continue
        list(decoder.decode(frame))
