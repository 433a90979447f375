"""The output pipes of a cell: everything is read, in the order in which it was written."""

import os
import select
import threading

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


def test_two_streams_are_read_in_the_order_in_which_they_were_written() -> None:
    pipes = OutputPipes(None)
    try:
        pieces = [(number % 2, b"%d\n" % number) for number in range(400)]
        assert b"".join(data for _, data in write_and_read(pipes, pieces)) == b"".join(
            data for _, data in pieces
        )
    finally:
        pipes.close()


def test_order_is_exact_again_after_one_stream_was_written_alone_for_long() -> None:
    pipes = OutputPipes(None)
    try:
        pieces = [(0, b"x" * 100) for _ in range(2000)] + [
            (number % 2, b"%d\n" % number) for number in range(1, 100)
        ]
        found = b"".join(data for _, data in write_and_read(pipes, pieces))
        assert found[200_000 + 2 * 4 :] == b"".join(data for _, data in pieces)[200_000 + 2 * 4 :]
        assert len(found) == sum(len(data) for _, data in pieces)
    finally:
        pipes.close()


@pytest.mark.parametrize("sizes", [[1], [4096], [4097], [65536, 1], [1_000_000]])
def test_every_byte_of_a_large_write_arrives(sizes: list[int]) -> None:
    pipes = OutputPipes(None)
    try:
        pieces = [(1, os.urandom(size)) for size in sizes]
        found = write_and_read(pipes, pieces)
        assert b"".join(data for _, data in found) == b"".join(data for _, data in pieces)
        assert {stream for stream, _ in found} == {"stderr"}
    finally:
        pipes.close()


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
