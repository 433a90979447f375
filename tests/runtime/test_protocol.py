"""Frames: what is encoded comes out again, however the stream is cut, and nothing else is taken for a frame."""

import json

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
def test_frames_come_out_as_they_went_in_however_cut(
    frames: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(protocol.encode(*frame) for frame in frames)
    decoder = protocol.Decoder()
    assert feed_in_pieces(decoder, stream, cuts) == [protocol.Frame(*frame) for frame in frames]


@given(st.binary(max_size=400), CUTS)
def test_noise_is_refused_or_decoded_alike_in_one_piece_and_in_many(
    noise: bytes, cuts: list[int]
) -> None:
    def outcome(pieces: list[int]) -> object:
        try:
            return feed_in_pieces(protocol.Decoder(), noise, pieces)
        except protocol.WireError:
            return "refused"

    assert outcome([len(noise) or 1]) == outcome(cuts)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.booleans())))
def test_json_comes_out_as_it_went_in(value: dict[str, object]) -> None:
    (frame,) = protocol.Decoder().feed(protocol.encode_json(protocol.RUN, 1, value))
    assert frame.json() == value


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", b"1", b"null", b'"text"'])
def test_payload_that_is_no_json_object_is_refused(payload: bytes) -> None:
    with pytest.raises(protocol.WireError, match="of kind 21 holds no JSON"):
        protocol.Frame(protocol.FAILED, 0, payload).json()


def test_payload_nested_too_deeply_is_refused() -> None:
    payload = json.dumps({"a": 1}).encode().replace(b"1", b"[" * 100_000)
    with pytest.raises(protocol.WireError):
        protocol.Frame(protocol.FAILED, 0, payload).json()


def test_largest_frame_passes_and_a_larger_one_is_not_made() -> None:
    largest = bytes(protocol.MAX_FRAME)
    (frame,) = protocol.Decoder().feed(protocol.encode(protocol.STDOUT, 1, largest))
    assert len(frame.payload) == protocol.MAX_FRAME
    with pytest.raises(protocol.WireError, match="larger than"):
        protocol.encode(protocol.STDOUT, 1, largest + b"x")


@pytest.mark.parametrize("length", [0, 4, protocol.MAX_FRAME + 6, 2**32 - 1])
def test_impossible_length_is_refused_before_anything_of_it_is_kept_and_after_what_came_before(
    length: int,
) -> None:
    frames = protocol.Decoder().feed(
        protocol.encode(protocol.STDOUT, 1, b"good") + length.to_bytes(4, "big") + bytes(5)
    )
    assert next(frames).payload == b"good"
    with pytest.raises(protocol.WireError, match=f"announces {length} bytes"):
        next(frames)
