"""The output limit keeps the first and the last bytes of the output, and counts the lost ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cellblock.runtime.output_limit import OutputLimit, Stream

STREAMS: st.SearchStrategy[Stream] = st.sampled_from(["stdout", "stderr"])
CHUNKS = st.lists(st.tuples(STREAMS, st.binary(min_size=1, max_size=50)), max_size=40)
TEXTS = st.lists(st.tuples(STREAMS, st.text("aé€😀", min_size=1, max_size=9)), max_size=12)


def apply_limit(
    limit: OutputLimit, chunks: list[tuple[Stream, bytes]]
) -> tuple[bytes, dict[str, int] | None, bytes]:
    """Return the head, the lost bytes and the tail of `chunks`."""
    head = b"".join(limit.add(stream, data) for stream, data in chunks)
    lost, tail = limit.finish()
    return head, lost, b"".join(data for _, data in tail)


@given(CHUNKS, st.integers(1, 300))
def test_exactly_the_limit_is_kept_and_the_rest_is_counted(
    chunks: list[tuple[Stream, bytes]], max_bytes: int
) -> None:
    output = b"".join(data for _, data in chunks)
    head, lost, tail = apply_limit(OutputLimit(max_bytes), chunks)
    assert len(head) + sum((lost or {}).values()) + len(tail) == len(output)
    assert len(head) + len(tail) == min(len(output), max_bytes)
    assert (lost is None) == (len(output) <= max_bytes)
    assert output.startswith(head)
    assert output.endswith(tail)


@given(CHUNKS, st.integers(1, 300))
def test_kept_and_lost_bytes_of_each_stream_add_up(
    chunks: list[tuple[Stream, bytes]], max_bytes: int
) -> None:
    limit = OutputLimit(max_bytes)
    sizes = {"stdout": 0, "stderr": 0}
    for stream, data in chunks:
        sizes[stream] += len(data) - len(limit.add(stream, data))
    lost, tail = limit.finish()
    for stream, data in tail:
        sizes[stream] -= len(data)
    assert sizes == (lost or {"stdout": 0, "stderr": 0})


@given(CHUNKS)
def test_without_a_limit_everything_is_passed_on_at_once(
    chunks: list[tuple[Stream, bytes]],
) -> None:
    limit = OutputLimit(None)
    assert [limit.add(stream, data) for stream, data in chunks] == [data for _, data in chunks]
    assert limit.finish() == (None, [])


@given(TEXTS, st.integers(1, 60))
def test_characters_of_text_are_not_cut_in_two(
    texts: list[tuple[Stream, str]], max_bytes: int
) -> None:
    output = "".join(text for _, text in texts)
    chunks: list[tuple[Stream, bytes]] = [(stream, text.encode()) for stream, text in texts]
    head, lost, tail = apply_limit(OutputLimit(max_bytes, text=True), chunks)
    assert output.startswith(head.decode())
    assert output.endswith(tail.decode())
    assert len(head) + len(tail) <= max_bytes
    assert len(head) + sum((lost or {}).values()) + len(tail) == len(output.encode())


def test_the_last_pending_bytes_are_kept() -> None:
    limit = OutputLimit(8)
    for data in (b"old", b"new", b"est"):
        limit.add_pending("stdout", data)
    assert b"".join(data for _, data in limit.pending()) == b"west"
