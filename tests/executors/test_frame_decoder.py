"""FrameDecoder decodes any bytes to text, and reports each end in the words of the contract."""

import signal
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cellblock import Ended, Limits, Output, OutputTruncated
from cellblock.executors.frame_decoder import FrameDecoder
from cellblock.runtime import protocol
from cellblock.runtime.messages import Ending

LIMITS = replace(
    Limits.unlimited(),
    memory_bytes=10 << 20,
    cpu_seconds=2,
    written_bytes=20,
    file_bytes=30,
    files=40,
)
CONTROLS = "\0\x1b" + "".join(map(chr, range(0x80, 0xA0)))  # that are replaced
KINDS = st.sampled_from([protocol.STDOUT, protocol.STDERR])


def ended(status: int | None = 0, why: str | None = None, limits: Limits = LIMITS) -> Ended:
    (frame,) = protocol.Decoder().feed(Ending(status, why, 1, 2, 3, 4).encode(1))
    *_, last = FrameDecoder(0, limits).decode(frame)
    assert isinstance(last, Ended)
    return last


def frame(kind: int, payload: bytes) -> protocol.Frame:
    return protocol.Frame(kind, 1, payload)


def texts(pieces: list[tuple[int, bytes]]) -> dict[str, str]:
    frames = FrameDecoder(0, LIMITS)
    events = [event for kind, data in pieces for event in frames.decode(frame(kind, data))]
    (end,) = protocol.Decoder().feed(Ending(0, None, 0, 0, 0, 0).encode(1))
    events += frames.decode(end)
    found = {"stdout": "", "stderr": ""}
    for event in events:
        if isinstance(event, Output):
            found[event.stream] += event.text
    return found


@given(st.lists(st.tuples(KINDS, st.binary(max_size=30))))
def test_any_bytes_become_printable_text(pieces: list[tuple[int, bytes]]) -> None:
    for text in texts(pieces).values():
        text.encode()  # raises for surrogates
        assert not set(CONTROLS) & set(text)


@given(
    st.text(st.characters(codec="utf-8", exclude_characters=CONTROLS)),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_text_is_complete_for_any_split_of_its_bytes(text: str, cuts: list[int]) -> None:
    data, pieces, start = text.encode(), list[tuple[int, bytes]](), 0
    while start < len(data):
        size = cuts[start % len(cuts)]
        pieces += [
            (protocol.STDOUT, data[start : start + size]),
            (protocol.STDERR, data[start : start + size]),
        ]
        start += size
    assert texts(pieces) == {"stdout": text, "stderr": text}


def test_bytes_before_a_truncation_are_not_joined_with_bytes_after_it() -> None:
    frames = FrameDecoder(0, LIMITS)
    events = list(frames.decode(frame(protocol.STDOUT, b"a\xc3")))
    events += frames.decode(frame(protocol.TRUNCATED, b'{"stdout": 5, "stderr": 6}'))
    events += frames.decode(frame(protocol.STDOUT, b"\xa9b"))
    assert events == [
        Output(0, "stdout", "a"),
        Output(0, "stdout", "\ufffd"),
        OutputTruncated(0, 5, 6),
        Output(0, "stdout", "\ufffdb"),
    ]


def test_the_start_is_not_reported_twice() -> None:
    assert list(FrameDecoder(0, LIMITS).decode(frame(protocol.READY, b"{}"))) == []


def test_the_exit_status_gives_exit_code_and_outcome() -> None:
    statuses = {0: 0, 3 << 8: 3, 255 << 8: 255, 9: 137, signal.SIGSEGV | 128: 139}
    for status, exit_code in statuses.items():
        end = ended(status)
        assert (end.exit_code, end.outcome) == (exit_code, "error" if exit_code else "ok")
        assert (end.limit, end.message) == (None, "")
        usage = end.usage
        assert (usage.wall_seconds, usage.cpu_seconds, usage.peak_memory_bytes) == (1, 2, 3)


def test_an_exceeded_limit_is_named() -> None:
    ends = [
        (124, "timeout", "wall_seconds", "Timeout"),
        (124, "timeout", "cpu_seconds", "Timeout: the limit of 2 CPU seconds."),
        (125, "cancelled", None, "Cancelled: Code execution was cancelled."),
        (
            *(137, "out_of_memory", "memory_bytes"),
            "Out of memory: the limit of 10485760 bytes (memory_bytes).",
        ),
        (
            *(137, "killed", "written_bytes"),
            "Killed: the block wrote more than the limit of 20 bytes (written_bytes).",
        ),
        (
            *(137, "killed", "files"),
            "Killed: the block made more than the limit of 40 files (files).",
        ),
    ]
    for exit_code, outcome, limit, message in ends:
        end = ended(9, limit or "cancelled")
        assert (end.exit_code, end.outcome, end.limit) == (exit_code, outcome, limit)
        assert end.message == f"\n{message}"


def test_the_file_size_limit_is_named_only_if_there_is_one() -> None:
    assert ended(signal.SIGXFSZ).limit == "file_bytes"
    assert (
        ended(signal.SIGXFSZ, limits=Limits.unlimited()).limit,
        ended(signal.SIGXFSZ, limits=Limits.unlimited()).exit_code,
    ) == (None, 153)


def test_a_missing_exit_status_is_reported_as_killed() -> None:
    assert (ended(None).exit_code, ended(None).outcome) == (137, "killed")
