"""Messages: what is encoded is decoded as it was; what is forged is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.runtime import protocol
from cellblock.runtime.messages import (
    INIT_ORDERS,
    INIT_REPORTS,
    Answer,
    Ending,
    Failure,
    ForkBranchInits,
    ForkNext,
    Hello,
    InitOrder,
    InitReport,
    MountFolders,
    OrderResult,
    ProcessExit,
    SessionVariable,
    StartSession,
    decode_packet,
    encode_packet,
)

TEXTS = st.none() | st.lists(st.text()).map(tuple)
NUMBERS = st.none() | st.integers()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=6,
)
ANSWERS = st.builds(
    Answer,
    pid=NUMBERS,
    checkpoint_pids=st.none() | st.lists(st.integers()).map(tuple),
    exit=NUMBERS,
    cpu=st.none() | st.floats(0, 1e9),
    interrupted=st.none() | st.booleans(),
    error=st.none() | st.text(),
    refused=TEXTS,
    missing=st.none() | st.booleans(),
    kind=st.none() | st.text(),
    variables=st.none()
    | st.lists(st.builds(SessionVariable, st.text(), st.text(), st.integers(), st.text())).map(
        tuple
    ),
    start=NUMBERS,
    matches=TEXTS,
    by_value=TEXTS,
    lost_variables=TEXTS,
    why=st.none(),
)


def flip(packet: bytes) -> bytes:
    """Return a packet whose first field has another type, or which has one more."""
    name, *fields = json.loads(packet)
    return json.dumps([name, 1.5, *fields[1:]]).encode()


def decoded(data: bytes) -> protocol.Frame:
    (frame,) = protocol.Decoder().feed(data)
    return frame


@given(ANSWERS)
def test_an_answer_arrives_as_it_was(answer: Answer) -> None:
    assert Answer.decode(decoded(answer.encode(7))) == answer


@given(st.dictionaries(st.sampled_from([*Answer._fields, "other"]), JSON, min_size=1))
def test_a_forged_answer_is_refused_or_has_the_types_that_it_should(
    fields: dict[str, object],
) -> None:
    frame = protocol.Frame(protocol.SESSION_REPLY, 1, json.dumps(fields).encode())
    try:
        answer = Answer.decode(frame)
    except protocol.ProtocolError:
        return
    assert isinstance(answer.exit, int | None)
    assert isinstance(answer.error, str | None)
    assert all(isinstance(pid, int) for pid in answer.checkpoint_pids or ())
    assert Answer.decode(decoded(answer.encode(1))) == answer


@pytest.mark.parametrize("name", ["why", "other"])
def test_a_session_cannot_send_what_only_the_server_knows(name: str) -> None:
    frame = protocol.Frame(protocol.SESSION_REPLY, 1, json.dumps({name: "x"}).encode())
    with pytest.raises(protocol.ProtocolError, match=name):
        Answer.decode(frame)


@given(st.builds(Failure, st.text(), file=st.none() | st.text(), lost=st.none() | st.just(1)))
def test_what_a_server_reports_is_valid_for_its_client(failure: Failure) -> None:
    for frame in (decoded(failure.encode(3)), decoded(Ending(None, None, 0, 0, 0, 0).encode(3))):
        protocol.check_fields(frame)
        assert None not in frame.json().values()


PACKETS = st.one_of(
    st.builds(StartSession, st.booleans(), st.booleans()),
    st.builds(MountFolders, st.lists(st.text()).map(tuple)),
    st.builds(ForkBranchInits, st.lists(st.text()).map(tuple), st.integers()),
    st.builds(ForkNext, st.lists(st.text()).map(tuple), st.text()),
    st.just(Hello()),
    st.builds(ProcessExit, st.integers(), st.integers(), st.floats(0, 1e9)),
    st.builds(OrderResult, st.text()),
)


@given(PACKETS)
def test_a_packet_arrives_as_it_was(message: InitOrder | ForkNext | InitReport) -> None:
    found = decode_packet(encode_packet(message), *INIT_ORDERS, ForkNext, *INIT_REPORTS)
    assert (type(found), found) == (type(message), message)


@given(st.binary() | JSON.map(json.dumps).map(str.encode) | PACKETS.map(encode_packet).map(flip))
def test_an_invalid_packet_is_refused(packet: bytes) -> None:
    with pytest.raises(protocol.ProtocolError, match="A packet is invalid"):
        decode_packet(packet, *INIT_ORDERS)
