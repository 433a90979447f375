"""The limit on output that arrives as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cellblock import Output, OutputTruncated
from cellblock.events import Stream
from cellblock.executors.jupyter.output_limit import TextOutputLimit

output_pieces = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("aé€😀", max_size=9)), max_size=12
)


def limit_output(
    pieces: list[tuple[Stream, str]], max_bytes: int | None
) -> list[OutputTruncated | Output]:
    limit = TextOutputLimit(0, max_bytes)
    events: list[OutputTruncated | Output] = [
        event for name, text in pieces for event in limit.add(Output(0, name, text))
    ]
    return [*events, *limit.finish()]


@given(output_pieces, st.integers(1, 60))
def test_the_head_and_the_tail_are_kept_and_the_rest_is_counted(
    pieces: list[tuple[Stream, str]], max_bytes: int
) -> None:
    events = limit_output(pieces, max_bytes)
    cuts = [index for index, event in enumerate(events) if isinstance(event, OutputTruncated)]
    first_cut = cuts[0] if cuts else len(events)
    head = "".join(event.text for event in events[:first_cut] if isinstance(event, Output))
    tail = "".join(event.text for event in events[first_cut:] if isinstance(event, Output))
    whole = "".join(text for _, text in pieces)
    lost = sum(
        event.stdout_bytes + event.stderr_bytes
        for event in events
        if isinstance(event, OutputTruncated)
    )
    assert len(cuts) == (1 if len(whole.encode()) > max_bytes else 0)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len((head + tail).encode()) <= max_bytes
    assert len((head + tail).encode()) + lost == len(whole.encode())


def test_lost_bytes_are_counted_per_stream() -> None:
    assert limit_output([("stdout", "ab"), ("stderr", "cdef"), ("stdout", "gh")], 4) == [
        Output(0, "stdout", "ab"),
        OutputTruncated(0, 0, 4),
        Output(0, "stdout", "gh"),
    ]


def test_without_a_limit_all_output_is_passed_on_at_once() -> None:
    output = Output(0, "stdout", "x" * 10_000_000)
    assert TextOutputLimit(0, None).add(output) == [output]


def test_the_head_is_passed_on_at_once() -> None:
    assert TextOutputLimit(0, 10).add(Output(0, "stdout", "early")) == [
        Output(0, "stdout", "early")
    ]
