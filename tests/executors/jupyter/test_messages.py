"""Decoding Jupyter messages into events, for valid and invalid messages in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cellblock import Display, Ended, Event, Output, Usage
from cellblock.executors.jupyter.messages import (
    NO_INPUT_MESSAGE,
    MessageDecoder,
    reports_kernel_death,
)

IDLE: dict[str, Any] = {"execution_state": "idle"}
OK: dict[str, Any] = {"status": "ok"}
ERROR: dict[str, Any] = {
    "status": "error",
    "ename": "ValueError",
    "evalue": "no",
    "traceback": ["\x1b[31mone\x1b[0m", "two"],
}


def message(kind: str, content: object, request: str = "r", session: str = "s") -> dict[str, Any]:
    return {
        "msg_type": kind,
        "parent_header": {"msg_id": request, "session": session},
        "content": content,
    }


def feed(messages: Sequence[object], session: str = "") -> list[Event]:
    execution = MessageDecoder(3, "r", session)
    return [event for item in messages for event in execution.decode(item)]


def stream(text: str, name: str = "stdout", **of: str) -> dict[str, Any]:
    return message("stream", {"name": name, "text": text}, **of)


END = [message("execute_reply", OK), message("status", IDLE)]


def test_output_keeps_its_order_and_its_stream() -> None:
    events = feed([stream("a"), stream("b", "stderr"), stream("c"), *END])
    assert events == [
        Output(3, "stdout", "a"),
        Output(3, "stderr", "b"),
        Output(3, "stdout", "c"),
        Ended(3, 0, "ok"),
    ]


def test_a_block_ends_after_the_reply_and_the_idle_status() -> None:
    for one, other in (END, END[::-1]):
        assert feed([one]) == feed([one, one]) == []
        late = feed([one, stream("late"), other, stream("ignored"), one, other])
        assert late == [Output(3, "stdout", "late"), Ended(3, 0, "ok")]


def test_messages_of_other_requests_are_ignored() -> None:
    other = [
        stream("theirs", request="x"),
        message("execute_reply", ERROR, "x"),
        message("status", IDLE, "x"),
    ]
    assert feed([*other, *END]) == [Ended(3, 0, "ok")]


def test_late_output_of_earlier_requests_of_the_session_is_kept() -> None:
    earlier = [
        stream("thread", request="x"),
        message("status", IDLE, "x"),
        message("execute_reply", ERROR, "x"),
    ]
    foreign = [stream("foreign", request="x", session="y")]
    assert feed([*earlier, *foreign, *END], session="s") == [
        Output(3, "stdout", "thread"),
        Ended(3, 0, "ok"),
    ]


def test_a_display_is_both_text_and_a_mime_bundle() -> None:
    data = {"text/plain": "<x>", "text/html": "<b>"}
    for kind in ("display_data", "execute_result", "update_display_data"):
        *shown, _ = feed([message(kind, {"data": data, "metadata": {"w": 1}}), *END])
        assert shown == [Output(3, "stdout", "<x>\n"), Display(3, data, {"w": 1})]


def test_an_error_is_output_once_and_without_colours() -> None:
    error, reply = message("error", ERROR), message("execute_reply", ERROR)
    for messages in ([error, reply], [error, reply, reply], [reply]):
        events = feed([*messages, message("status", IDLE)])
        assert events == [Output(3, "stderr", "one\ntwo\n"), Ended(3, 1, "error")]


def test_exit_codes_are_taken_from_the_error() -> None:
    for name, value, exit_code, text in (
        ("SystemExit", "3", 3, ""),
        ("SystemExit", "0", 0, ""),
        ("SystemExit", "None", 0, ""),
        ("SystemExit", "", 0, ""),
        ("SystemExit", "-1", 255, ""),
        ("SystemExit", "256", 0, ""),
        ("SystemExit", "bye", 1, "bye\n"),
        ("SystemExit", "²", 1, "²\n"),
        ("", "42", 42, ""),
        ("", "0", 1, ""),
        ("KeyError", "3", 1, "KeyError: 3\n"),
    ):
        content = {"status": "error", "ename": name, "evalue": value, "traceback": list[str]()}
        *output, end = feed([message("execute_reply", content), message("status", IDLE)])
        assert output == ([Output(3, "stderr", text)] if text else []), (name, value)
        assert end == Ended(3, exit_code, "error" if exit_code else "ok"), (name, value)


def test_a_reply_other_than_ok_is_a_failure() -> None:
    assert feed([message("execute_reply", {"status": "aborted"}), message("status", IDLE)]) == [
        Ended(3, 1, "error")
    ]


def test_paged_help_is_output() -> None:
    pages = [{"source": "page", "data": {"text/plain": "Help\x1b[0m"}}, {"source": "ask_exit"}, 3]
    assert feed([message("execute_reply", {**OK, "payload": pages})]) == [
        Output(3, "stdout", "Help\n")
    ]


def test_a_request_for_input_is_reported_once() -> None:
    execution = MessageDecoder(3, "r")
    events = [
        event
        for _ in range(2)
        for event in execution.decode(message("input_request", {"prompt": "name?"}))
    ]
    assert events == [Output(3, "stderr", NO_INPUT_MESSAGE)]
    assert execution.wants_input


def test_errors_caused_by_an_interrupt_are_not_output() -> None:
    execution = MessageDecoder(3, "r")
    execution.suppress_errors()
    assert [*execution.decode(message("error", ERROR))] == []
    assert [*execution.decode(stream("caught"))] == [Output(3, "stdout", "caught")]


def test_an_early_finish_is_the_only_end() -> None:
    execution = MessageDecoder(3, "r")
    assert execution.finish(124, "timeout", "wall_seconds", "\nTimeout") == Ended(
        3, 124, "timeout", "wall_seconds", "\nTimeout", Usage()
    )
    assert [event for item in END for event in execution.decode(item)] == []


def test_a_servers_report_of_a_kernels_death_is_recognised() -> None:
    for state in ("restarting", "autorestarting", "dead"):
        assert reports_kernel_death(
            {
                "header": {"msg_type": "status"},
                "parent_header": {},
                "content": {"execution_state": state},
            }
        )
    assert not reports_kernel_death(message("status", IDLE))
    assert not reports_kernel_death(message("stream", {"execution_state": "dead"}))


# arbitrary messages

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
KINDS = (
    "stream display_data update_display_data execute_result error status execute_reply "
    "input_request clear_output execute_input comm_msg"
).split()
FIELDS = (
    "name text data metadata ename evalue traceback status execution_state payload source".split()
)
content = st.dictionaries(
    st.sampled_from(FIELDS),
    anything | st.sampled_from(["idle", "ok", "error", "stdout", "SystemExit", "busy"]),
    max_size=5,
)
messages = st.lists(
    st.builds(
        message,
        st.sampled_from(KINDS),
        content | anything,
        st.sampled_from("rx"),
        st.sampled_from("st"),
    )
    | st.fixed_dictionaries({"header": anything, "content": anything, "parent_header": anything})
    | anything,
    max_size=12,
)


@given(messages, st.sampled_from(["", "s"]))
def test_no_message_raises_an_exception_and_a_block_ends_once(
    items: list[Any], session: str
) -> None:
    events = feed([*items, *END, *items, *END], session)
    assert [index for index, event in enumerate(events) if isinstance(event, Ended)] == [
        len(events) - 1
    ]
    for event in events:
        assert event.block == 3
        if isinstance(event, Output):
            event.text.encode()
            assert "\x1b" not in event.text


@given(st.lists(st.tuples(st.text(), st.sampled_from(["stdout", "stderr"])), max_size=8), st.data())
def test_output_keeps_its_order_between_other_messages(
    said: list[tuple[str, str]], data: st.DataObject
) -> None:
    noise = st.sampled_from(
        [message("status", {"execution_state": "busy"}), message("execute_input", {}), 3, END[0]]
    )
    items: list[object] = []
    for text, name in said:
        items += [*data.draw(st.lists(noise, max_size=2)), stream(_plain(text), name)]
    events = feed([*items, *END])
    for name in ("stdout", "stderr"):
        whole = "".join(
            event.text for event in events if isinstance(event, Output) and event.stream == name
        )
        assert whole == "".join(_plain(text) for text, stream in said if stream == name)


def _plain(text: str) -> str:
    """Return text without the control characters that are replaced."""
    return re.sub("[\0\x1b\x80-\x9f]", "", text)
