"""Which agent may speak after which."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cellblock.chat import GroupChat
from tests.chat.group import manager_of, said, speaker, speakers

A, B, C = speakers()
D = speaker("d")


def allowed(graph: Any, kind: str = "allowed") -> dict[str, str]:
    options: dict[str, Any] = {"speaker_transitions_type": kind}
    chat = GroupChat([A, B, C], [], allowed_or_disallowed_speaker_transitions=graph, **options)
    return named(chat)


def named(chat: GroupChat) -> dict[str, str]:
    transitions = chat.allowed_speaker_transitions_dict
    return {one.name: "".join(each.name for each in after) for one, after in transitions.items()}


def test_allowed_transitions_stay_and_disallowed_ones_are_inverted() -> None:
    assert allowed({A: [B], B: [C], C: [A]}) == {"a": "b", "b": "c", "c": "a"}
    assert allowed({A: [B]}, "Disallowed") == {"a": "ac", "b": "abc", "c": "abc"}


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        (None, {"a": "bca", "b": "acb", "c": "abc"}),
        (True, {"a": "bca", "b": "acb", "c": "abc"}),
        (False, {"a": "bc", "b": "ac", "c": "ab"}),
        ([B], {"a": "bc", "b": "acb", "c": "ab"}),
    ],
)
def test_agents_may_repeat_as_far_as_it_is_allowed(repeat: Any, expected: Any) -> None:
    assert named(GroupChat([A, B, C], [], allow_repeat_speaker=repeat)) == expected


@pytest.mark.parametrize("kind", ["allowed", "disallowed"])
@pytest.mark.parametrize(
    ("graph", "error"),
    [
        ([A], "must be a dictionary"),
        ({A: B}, "must be a dictionary with lists as values"),
        ({D: [A]}, "has keys not in agents"),
        ({"a": [B]}, "has keys not in agents"),
    ],
)
def test_a_graph_of_another_shape_is_refused(kind: str, graph: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        allowed(graph, kind)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"allowed_or_disallowed_speaker_transitions": {A: [B]}}, "Please set speaker_transitions"),
        ({"speaker_transitions_type": "other"}, "is set to 'other'. It should be one of"),
        ({"allow_repeat_speaker": 5}, "should be a bool or a list of Agents"),
        ({"allow_repeat_speaker": [D]}, "names 'd', which is not in the group chat"),
        (
            {
                "allowed_or_disallowed_speaker_transitions": {A: [B]},
                "speaker_transitions_type": "allowed",
                "allow_repeat_speaker": True,
            },
            "Don't provide both",
        ),
        (
            {
                "allowed_or_disallowed_speaker_transitions": {A: ["b"]},
                "speaker_transitions_type": "allowed",
            },
            "has values that are not lists of Agents",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        GroupChat([A, B, C], [], **options)


def test_what_looks_like_a_mistake_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        allowed({A: [B, B], B: [D]})
    assert "Isolated agents: ['c']" in caplog.text
    assert "Offending agents: ['c', 'd']" in caplog.text
    assert "Agent 'a' has duplicate elements: ['b']" in caplog.text


@pytest.mark.parametrize("method", ["round_robin", "random", "auto", "manual"])
@pytest.mark.parametrize("after_b", [[], [D], None])
def test_the_chat_ends_after_an_agent_that_nobody_may_follow(
    method: str, after_b: Any, caplog: pytest.LogCaptureFixture
) -> None:

    a, b, c = speakers()
    graph = {a: [b], c: [a]} if after_b is None else {a: [b], b: after_b, c: [a]}
    manager = manager_of(
        [a, b, c],
        speaker_selection_method=method,
        allowed_or_disallowed_speaker_transitions=graph,
        speaker_transitions_type="allowed",
    )
    a.initiate_chat(manager, message="go")
    assert said(manager) == ["go", "b1"]
    assert "No eligible speaker found. Terminating the conversation." in caplog.text
