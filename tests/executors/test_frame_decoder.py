"""Frames become events: text out of any bytes, and endings in the contract's words."""

import json
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import Ended, Limits, Output, OutputTruncated
from cellblock.executors.frame_decoder import Frames
from cellblock.runtime import protocol

LIMITS = Limits(memory_bytes=10, cpu_seconds=2, written_bytes=20, file_bytes=30)
KINDS = st.sampled_from([protocol.STDOUT, protocol.STDERR])


def ended(status: int | None = 0, why: str | None = None, limits: Limits = LIMITS) -> Ended:
    ending: dict[str, Any] = {
        "why": why,
        "status": status,
        "wall": 1,
        "cpu": 2,
        "peak": 3,
        "queued": 4,
    }
    *_, last = Frames(0, limits).events(frame(protocol.ENDED, json.dumps(ending).encode()))
    assert isinstance(last, Ended)
    return last


def frame(kind: int, payload: bytes) -> protocol.Frame:
    return protocol.Frame(kind, 1, payload)


def texts(pieces: list[tuple[int, bytes]]) -> dict[str, str]:
    frames = Frames(0, LIMITS)
    events = [event for kind, data in pieces for event in frames.events(frame(kind, data))]
    events += frames.events(
        frame(protocol.ENDED, b'{"status": 0, "wall": 0, "cpu": 0, "peak": 0, "queued": 0}')
    )
    found = {"stdout": "", "stderr": ""}
    for event in events:
        if isinstance(event, Output):
            found[event.stream] += event.text
    return found


@given(st.lists(st.tuples(KINDS, st.binary(max_size=30))))
def test_any_bytes_become_text_that_can_be_printed_and_stored(
    pieces: list[tuple[int, bytes]],
) -> None:
    for text in texts(pieces).values():
        text.encode()  # raises for surrogates
        assert not {"\0", "\x1b"} & set(text)


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\x1b")),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_text_is_whole_however_its_bytes_are_cut(text: str, cuts: list[int]) -> None:
    data, pieces, start = text.encode(), list[tuple[int, bytes]](), 0
    while start < len(data):
        size = cuts[start % len(cuts)]
        pieces += [
            (protocol.STDOUT, data[start : start + size]),
            (protocol.STDERR, data[start : start + size]),
        ]
        start += size
    assert texts(pieces) == {"stdout": text, "stderr": text}


def test_bytes_before_a_cut_are_not_joined_with_those_after_it() -> None:
    frames = Frames(0, LIMITS)
    events = list(frames.events(frame(protocol.STDOUT, b"a\xc3")))
    events += frames.events(frame(protocol.CUT, b'{"stdout": 5, "stderr": 6}'))
    events += frames.events(frame(protocol.STDOUT, b"\xa9b"))
    assert events == [
        Output(0, "stdout", "a"),
        Output(0, "stdout", "\ufffd"),
        OutputTruncated(0, 5, 6),
        Output(0, "stdout", "\ufffdb"),
    ]


def test_start_is_not_told_twice() -> None:
    assert list(Frames(0, LIMITS).events(frame(protocol.READY, b"{}"))) == []


@pytest.mark.parametrize(
    ("status", "exit_code", "outcome"),
    [
        (0, 0, "ok"),
        (3 << 8, 3, "error"),
        (255 << 8, 255, "error"),
        (9, 137, "error"),
        (signal.SIGSEGV | 128, 139, "error"),
    ],
)
def test_own_end_of_a_program(status: int, exit_code: int, outcome: str) -> None:
    end = ended(status)
    assert (end.exit_code, end.outcome, end.limit, end.message) == (exit_code, outcome, None, "")
    assert (end.usage.wall_seconds, end.usage.cpu_seconds, end.usage.peak_memory_bytes) == (1, 2, 3)


@pytest.mark.parametrize(
    ("why", "exit_code", "outcome", "limit", "message"),
    [
        ("wall_seconds", 124, "timeout", "wall_seconds", "\nTimeout"),
        ("cpu_seconds", 124, "timeout", "cpu_seconds", "\nTimeout: the limit of 2 CPU seconds."),
        ("cancelled", 125, "cancelled", None, "\nCancelled: Code execution was cancelled."),
        (
            "memory_bytes",
            137,
            "out_of_memory",
            "memory_bytes",
            "\nOut of memory: the limit of 10 bytes (memory_bytes).",
        ),
        (
            "written_bytes",
            137,
            "killed",
            "written_bytes",
            "\nKilled: more was written than the limit of 20 bytes (written_bytes).",
        ),
    ],
)
def test_end_by_a_limit_names_it(
    why: str, exit_code: int, outcome: str, limit: str | None, message: str
) -> None:
    end = ended(9, why)
    assert (end.exit_code, end.outcome, end.limit, end.message) == (
        exit_code,
        outcome,
        limit,
        message,
    )


def test_file_size_limit_is_named_only_where_there_is_one() -> None:
    assert ended(signal.SIGXFSZ).limit == "file_bytes"
    assert (
        ended(signal.SIGXFSZ, limits=Limits()).limit,
        ended(signal.SIGXFSZ, limits=Limits()).exit_code,
    ) == (
        None,
        153,
    )


def test_lost_first_process_is_a_kill() -> None:
    assert (ended(None).exit_code, ended(None).outcome) == (137, "killed")
