"""Output: pipes are read in the order in which they were written, and the cap keeps the first and the last of it."""

import os
import select
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.runtime.server.pipes import Keeper, OutputPipe, Pump, Stream

STREAMS: st.SearchStrategy[Stream] = st.sampled_from(["stdout", "stderr"])
CHUNKS = st.lists(st.tuples(STREAMS, st.binary(min_size=1, max_size=50)), max_size=40)


def kept(
    keeper: Keeper, chunks: list[tuple[Stream, bytes]]
) -> tuple[bytes, dict[str, int] | None, bytes]:
    head = b"".join(keeper.take(stream, data) for stream, data in chunks)
    lost, tail = keeper.rest()
    return head, lost, b"".join(data for _, data in tail)


@given(CHUNKS, st.integers(1, 300))
def test_head_tail_and_lost_are_all_of_the_output(
    chunks: list[tuple[Stream, bytes]], cap: int
) -> None:
    whole = b"".join(data for _, data in chunks)
    head, lost, tail = kept(Keeper(cap), chunks)
    missing = sum((lost or {}).values())
    assert len(head) + missing + len(tail) == len(whole)
    assert whole.startswith(head)
    assert whole.endswith(tail)


@given(CHUNKS, st.integers(1, 300))
def test_no_more_is_kept_than_the_cap_and_nothing_lost_below_it(
    chunks: list[tuple[Stream, bytes]], cap: int
) -> None:
    size = sum(len(data) for _, data in chunks)
    head, lost, tail = kept(Keeper(cap), chunks)
    assert len(head) + len(tail) == min(size, cap)
    assert (lost is None) == (size <= cap)


@given(CHUNKS, st.integers(1, 300))
def test_each_stream_s_kept_and_lost_bytes_are_all_of_it(
    chunks: list[tuple[Stream, bytes]], cap: int
) -> None:
    keeper = Keeper(cap)
    sizes = {"stdout": 0, "stderr": 0}
    for stream, data in chunks:
        sizes[stream] += len(data) - len(keeper.take(stream, data))
    lost, tail = keeper.rest()
    for stream, data in tail:
        sizes[stream] -= len(data)
    assert sizes == (lost or {"stdout": 0, "stderr": 0})


@given(CHUNKS)
def test_without_a_cap_everything_goes_out_at_once(chunks: list[tuple[Stream, bytes]]) -> None:
    keeper = Keeper(None)
    assert [keeper.take(stream, data) for stream, data in chunks] == [data for _, data in chunks]
    assert keeper.rest() == (None, [])


def read_all(pump: Pump, writing: threading.Thread) -> list[tuple[Stream, bytes]]:
    """Read as the cell server does, until `writing` has ended."""
    found: list[tuple[Stream, bytes]] = []
    with select.epoll() as poll:
        for reader in pump.pipes:
            poll.register(reader, select.EPOLLIN | select.EPOLLET)
        while writing.is_alive():
            more = any(pipe.more for pipe in pump.pipes.values())
            for reader, _ in poll.poll(0 if more else 0.02):
                found += pump.readable(reader)
            for reader, pipe in pump.pipes.items():
                if pipe.more:
                    found += pump.readable(reader)
    writing.join()
    return found + pump.rest()


def written(pump: Pump, pieces: list[tuple[int, bytes]]) -> list[tuple[Stream, bytes]]:
    def write() -> None:
        for which, data in pieces:
            while data:
                data = data[os.write(pump.writers[which], data) :]

    thread = threading.Thread(target=write)
    thread.start()
    return read_all(pump, thread)


def test_two_streams_are_read_in_the_order_of_their_writes() -> None:
    pump = Pump(None)
    try:
        pieces = [(number % 2, b"%d\n" % number) for number in range(400)]
        assert b"".join(data for _, data in written(pump, pieces)) == b"".join(
            data for _, data in pieces
        )
    finally:
        pump.close()


def test_order_comes_back_after_a_stream_that_wrote_alone_for_long() -> None:
    pump = Pump(None)
    try:
        pieces = [(0, b"x" * 100) for _ in range(2000)] + [
            (number % 2, b"%d\n" % number) for number in range(1, 100)
        ]
        found = b"".join(data for _, data in written(pump, pieces))
        assert found[200_000 + 2 * 4 :] == b"".join(data for _, data in pieces)[200_000 + 2 * 4 :]
        assert len(found) == sum(len(data) for _, data in pieces)
    finally:
        pump.close()


@pytest.mark.parametrize("sizes", [[1], [4096], [4097], [65536, 1], [1_000_000]])
def test_every_byte_of_a_large_write_arrives(sizes: list[int]) -> None:
    pump = Pump(None)
    try:
        pieces = [(1, os.urandom(size)) for size in sizes]
        found = written(pump, pieces)
        assert b"".join(data for _, data in found) == b"".join(data for _, data in pieces)
        assert {stream for stream, _ in found} == {"stderr"}
    finally:
        pump.close()


def test_empty_pipe_gives_nothing_and_does_not_block() -> None:
    pipe = OutputPipe("stdout")
    try:
        assert (pipe.read(), pipe.rest(), pipe.more) == ([], [], False)
    finally:
        pipe.close()


def test_closing_twice_is_harmless() -> None:
    pipe = OutputPipe("stdout")
    pipe.close()
    pipe.close()
