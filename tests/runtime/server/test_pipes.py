"""The output pipes of a cell: everything is read, in the order in which it was written."""

import os
import select
import threading
from collections.abc import Iterable, Iterator

import pytest

from cellblock.runtime.output_limit import Stream
from cellblock.runtime.server.pipes import OutputPipe, OutputPipes


def read_all(pipes: OutputPipes, writing: threading.Thread) -> list[tuple[Stream, bytes]]:
    """Read like the server until the thread `writing` has ended."""
    found: list[tuple[Stream, bytes]] = []
    with select.epoll() as poll:
        for reader in pipes.readers:
            poll.register(reader, select.EPOLLIN | select.EPOLLET)
        while writing.is_alive():
            more = any(pipe.has_more for pipe in pipes.readers.values())
            for reader, _ in poll.poll(0 if more else 0.02):
                found += pipes.read(reader)
            for reader, pipe in pipes.readers.items():
                if pipe.has_more:
                    found += pipes.read(reader)
    writing.join()
    return found + pipes.drain()


def write_and_read(
    pipes: OutputPipes, pieces: list[tuple[int, bytes]]
) -> list[tuple[Stream, bytes]]:
    def write() -> None:
        for which, data in pieces:
            while data:
                data = data[os.write(pipes.writers[which], data) :]

    thread = threading.Thread(target=write)
    thread.start()
    return read_all(pipes, thread)


@pytest.fixture
def pipes() -> Iterator[OutputPipes]:
    pipes = OutputPipes(None)
    yield pipes
    pipes.close()


def joined(pieces: Iterable[tuple[object, bytes]]) -> bytes:
    return b"".join(data for _, data in pieces)


def test_two_streams_are_read_in_the_order_in_which_they_were_written(pipes: OutputPipes) -> None:
    pieces = [(number % 2, b"%d\n" % number) for number in range(400)]
    assert joined(write_and_read(pipes, pieces)) == joined(pieces)


def test_order_is_exact_again_after_one_stream_was_written_alone_for_long(
    pipes: OutputPipes,
) -> None:
    alone = [(0, b"x" * 100) for _ in range(2000)]
    pieces = [*alone, *((number % 2, b"%d\n" % number) for number in range(1, 100))]
    found, start = joined(write_and_read(pipes, pieces)), 200_000 + 2 * 4
    assert found[start:] == joined(pieces)[start:]
    assert len(found) == len(joined(pieces))


def test_every_byte_of_a_large_write_arrives(pipes: OutputPipes) -> None:
    for size in (1, 4096, 4097, 65537, 1_000_000):
        pieces = [(1, os.urandom(size))]
        found = write_and_read(pipes, pieces)
        assert joined(found) == joined(pieces)
        assert {stream for stream, _ in found} == {"stderr"}


def test_reading_an_empty_pipe_returns_nothing_and_does_not_block() -> None:
    pipe = OutputPipe("stdout")
    try:
        assert (pipe.read(), pipe.drain(), pipe.has_more) == ([], [], False)
    finally:
        pipe.close()


def test_a_pipe_can_be_closed_twice() -> None:
    pipe = OutputPipe("stdout")
    pipe.close()
    pipe.close()
