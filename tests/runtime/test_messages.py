"""Messages: what is encoded is decoded as it was; what is forged is refused."""

from __future__ import annotations

import json
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.runtime import protocol
from cellblock.runtime.box_orders import BOX_ORDERS, BoxAnswer, CommandStarted
from cellblock.runtime.messages import (
    INIT_ORDERS,
    INIT_REPORTS,
    Answer,
    Ending,
    Failure,
    FetchedMounts,
    FetchMounts,
    ForkNext,
    Importing,
    KeepPaths,
    Ready,
    RunRequest,
    TenantSpec,
    check_reply,
)
from cellblock.runtime.packets import decode_fields, decode_packet, encode_packet
from cellblock.runtime.session_orders import CHECKPOINT_ORDERS, PROCESS_ORDERS, SESSION_ORDERS
from cellblock.runtime.spec import ServerSpec, ZygoteSpec

KINDS: tuple[type[tuple[Any, ...]], ...] = (
    *(ServerSpec, ZygoteSpec, TenantSpec, RunRequest, KeepPaths),
    *(Ready, Failure, Importing, FetchMounts, FetchedMounts),
    *dict.fromkeys((*SESSION_ORDERS, *PROCESS_ORDERS, *CHECKPOINT_ORDERS)),
    *(*BOX_ORDERS, CommandStarted, BoxAnswer),
    *(*INIT_ORDERS, *INIT_REPORTS, ForkNext),
)
SCALARS: dict[object, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(-(1 << 63), 1 << 63),
    float: st.floats(0, 1e9),
    str: st.text(),
    bytes: st.binary(),
    dict[str, str]: st.dictionaries(st.text(), st.text()),
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=6,
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return what makes valid values of a type that is used in messages."""
    if kind in SCALARS:
        return SCALARS[kind]
    arguments = get_args(kind)
    if NoneType in arguments:
        return st.one_of([values_of(each) for each in arguments])
    if arguments[-1:] == (...,):
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if get_origin(kind) is tuple:
        return st.tuples(*map(values_of, arguments))
    return st.builds(kind, **{name: values_of(hint) for name, hint in get_type_hints(kind).items()})


def decoded(data: bytes) -> protocol.Frame:
    (frame,) = protocol.Decoder().feed(data)
    return frame


@given(values_of(Answer))
def test_an_answer_arrives_as_it_was(answer: Answer) -> None:
    answer = answer._replace(why=None)
    assert Answer.from_session(decoded(answer.encode(7))) == answer


@given(st.dictionaries(st.sampled_from([*Answer._fields, "other"]), JSON, min_size=1))
def test_a_forged_answer_is_refused_or_has_the_types_that_it_should(
    fields: dict[str, object],
) -> None:
    frame = protocol.Frame(protocol.SESSION_REPLY, 1, json.dumps(fields).encode())
    try:
        answer = Answer.from_session(frame)
    except protocol.ProtocolError:
        return
    assert isinstance(answer.exit, int | None)
    assert isinstance(answer.error, str | None)
    assert all(isinstance(pid, int) for pid in answer.checkpoint_pids or ())
    assert Answer.from_session(decoded(answer.encode(1))) == answer


@pytest.mark.parametrize("name", ["why", "other"])
def test_a_session_cannot_send_what_only_the_server_knows(name: str) -> None:
    frame = protocol.Frame(protocol.SESSION_REPLY, 1, json.dumps({name: "x"}).encode())
    with pytest.raises(protocol.ProtocolError, match=name):
        Answer.from_session(frame)


@given(values_of(Failure))
def test_what_a_server_reports_arrives_as_it_was(failure: Failure) -> None:
    ending = Ending(None, None, 0, 0, 0, 0)
    assert decode_fields(decoded(failure.encode(3)), Failure) == failure
    assert decode_fields(decoded(ending.encode(3)), Ending) == ending


@given(values_of(BoxAnswer))
def test_what_a_box_answers_arrives_as_it_was(answer: BoxAnswer) -> None:
    assert decode_fields(decoded(answer.encode(3)), BoxAnswer) == answer


@given(st.dictionaries(st.sampled_from([*BoxAnswer._fields, "other"]), JSON, min_size=1))
def test_a_forged_answer_of_a_box_is_refused_or_has_the_types_that_it_should(
    fields: dict[str, object],
) -> None:
    frame = protocol.Frame(protocol.BOX_REPLY, 1, json.dumps(fields).encode())
    try:
        check_reply(frame)
    except protocol.ProtocolError:
        return
    answer = decode_fields(frame, BoxAnswer)
    assert isinstance(answer.exit, int | None)
    assert isinstance(answer.error, str | None)
    assert all(isinstance(entry.name, str) for entry in answer.entries or ())
    assert decode_fields(decoded(answer.encode(1)), BoxAnswer) == answer


MESSAGES = st.sampled_from(KINDS).flatmap(values_of)


@given(MESSAGES)
def test_a_message_arrives_as_it_was(message: tuple[Any, ...]) -> None:
    found = decode_packet(encode_packet(message), *KINDS)
    assert (type(found), found) == (type(message), message)


def places_in(value: Any) -> list[tuple[list[Any], int]]:
    """Return the place of each value in a list, at any depth."""
    if not isinstance(value, list):
        return []
    values = cast("list[Any]", value)
    own = [(values, index) for index in range(len(values))]
    return own + [place for inner in values for place in places_in(inner)]


@given(MESSAGES, JSON, st.integers(0, 1 << 16))
def test_a_message_with_a_forged_value_is_refused_or_has_the_types_that_it_should(
    message: tuple[Any, ...], forged: object, place: int
) -> None:
    packet = json.loads(encode_packet(message))
    places = places_in(packet)
    part, index = places[place % len(places)]
    part[index] = forged
    try:
        found = decode_packet(json.dumps(packet).encode(), *KINDS)
    except protocol.ProtocolError:
        return
    assert decode_packet(encode_packet(found), *KINDS) == found


@given(MESSAGES)
def test_a_field_of_another_type_or_a_missing_one_is_refused(message: Any) -> None:
    name, *fields = json.loads(encode_packet(message))
    for index, field in enumerate(message._fields):
        forged = [name, *fields[:index], {"x": 1}, *fields[index + 1 :]]
        with pytest.raises(protocol.ProtocolError, match=field):
            decode_packet(json.dumps(forged).encode(), *KINDS)
    for wrong in (fields[:-1], [*fields, 1]):
        if wrong != fields:
            with pytest.raises(protocol.ProtocolError, match="A packet is invalid"):
                decode_packet(json.dumps([name, *wrong]).encode(), *KINDS)


@given(st.binary() | JSON.map(json.dumps).map(str.encode))
def test_what_is_no_message_is_refused(packet: bytes) -> None:
    with pytest.raises(protocol.ProtocolError, match="A packet is invalid"):
        decode_packet(packet, *KINDS)


def test_a_message_for_somebody_else_is_refused() -> None:
    with pytest.raises(protocol.ProtocolError, match="A packet is invalid"):
        decode_packet(encode_packet(TenantSpec()), RunRequest)
