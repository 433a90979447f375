"""The cap on output that comes as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cellblock import Output, OutputTruncated
from cellblock.events import Stream
from cellblock.executors.jupyter.output_limit import Cap

parts = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("aé€😀", max_size=9)), max_size=12
)


def capped(said: list[tuple[Stream, str]], most: int | None) -> list[OutputTruncated | Output]:
    cap = Cap(0, most)
    events: list[OutputTruncated | Output] = [
        event for name, text in said for event in cap.add(Output(0, name, text))
    ]
    return [*events, *cap.end()]


@given(parts, st.integers(1, 60))
def test_head_and_tail_are_kept_and_the_rest_is_counted(
    said: list[tuple[Stream, str]], most: int
) -> None:
    events = capped(said, most)
    cuts = [index for index, event in enumerate(events) if isinstance(event, OutputTruncated)]
    where = cuts[0] if cuts else len(events)
    head = "".join(event.text for event in events[:where] if isinstance(event, Output))
    tail = "".join(event.text for event in events[where:] if isinstance(event, Output))
    whole = "".join(text for _, text in said)
    lost = sum(
        event.stdout_bytes + event.stderr_bytes
        for event in events
        if isinstance(event, OutputTruncated)
    )
    assert len(cuts) == (1 if len(whole.encode()) > most else 0)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len((head + tail).encode()) <= most
    assert len((head + tail).encode()) + lost == len(whole.encode())


def test_the_streams_losses_are_told_apart() -> None:
    assert capped([("stdout", "ab"), ("stderr", "cdef"), ("stdout", "gh")], 4) == [
        Output(0, "stdout", "ab"),
        OutputTruncated(0, 0, 4),
        Output(0, "stdout", "gh"),
    ]


def test_without_a_cap_all_is_passed_on_at_once() -> None:
    output = Output(0, "stdout", "x" * 10_000_000)
    assert Cap(0, None).add(output) == [output]


def test_the_head_is_passed_on_at_once() -> None:
    assert Cap(0, 10).add(Output(0, "stdout", "early")) == [Output(0, "stdout", "early")]
