"""Frames are decoded as they were encoded, in whatever pieces they arrive; others are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.runtime import protocol

FRAMES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=8
)
CUTS = st.lists(st.integers(1, 64), min_size=1, max_size=40)


def feed_in_pieces(
    decoder: protocol.Decoder, stream: bytes, cuts: list[int]
) -> list[protocol.Frame]:
    frames: list[protocol.Frame] = []
    start = 0
    while start < len(stream):
        size = cuts[start % len(cuts)]
        frames += decoder.feed(stream[start : start + size])
        start += size
    return frames


@given(FRAMES, CUTS)
def test_frames_are_decoded_from_pieces_of_any_size(
    frames: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(protocol.encode(*frame) for frame in frames)
    decoder = protocol.Decoder()
    assert feed_in_pieces(decoder, stream, cuts) == [protocol.Frame(*frame) for frame in frames]


@given(st.binary(max_size=400), CUTS)
def test_the_result_for_random_bytes_does_not_depend_on_the_pieces(
    data: bytes, cuts: list[int]
) -> None:
    def outcome(pieces: list[int]) -> object:
        try:
            return feed_in_pieces(protocol.Decoder(), data, pieces)
        except protocol.ProtocolError:
            return "refused"

    assert outcome([len(data) or 1]) == outcome(cuts)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.booleans())))
def test_a_json_object_is_decoded_as_it_was_encoded(value: dict[str, object]) -> None:
    (frame,) = protocol.Decoder().feed(protocol.encode_json(protocol.RUN, 1, value))
    assert frame.json() == value


def test_a_payload_that_is_not_a_json_object_is_refused() -> None:
    for payload in (b"", b"{", b"\xff", b"[]", b"1", b"null", b'"text"'):
        with pytest.raises(protocol.ProtocolError, match="of kind 21 does not contain (a )?JSON"):
            protocol.Frame(protocol.FAILED, 0, payload).json()
    deep = b'{"a": ' + b"[" * 100_000
    with pytest.raises(protocol.ProtocolError):
        protocol.Frame(protocol.FAILED, 0, deep).json()


def test_the_largest_frame_is_accepted_and_a_larger_one_is_refused() -> None:
    largest = bytes(protocol.MAX_FRAME)
    (frame,) = protocol.Decoder().feed(protocol.encode(protocol.STDOUT, 1, largest))
    assert len(frame.payload) == protocol.MAX_FRAME
    with pytest.raises(protocol.ProtocolError, match="larger than"):
        protocol.encode(protocol.STDOUT, 1, largest + b"x")


def test_an_invalid_length_is_refused_after_the_frames_before_it() -> None:
    good = protocol.encode(protocol.STDOUT, 1, b"good")
    for length in (0, 4, protocol.MAX_FRAME + 6, 2**32 - 1):
        frames = protocol.Decoder().feed(good + length.to_bytes(4, "big") + bytes(5))
        assert next(frames).payload == b"good"
        with pytest.raises(protocol.ProtocolError, match=f"length of {length} bytes"):
            next(frames)
