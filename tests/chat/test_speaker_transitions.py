"""Which agent may speak after which."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import GroupChat
from cellblock.chat.groups.speaker_transitions import visualize_speaker_transitions_dict
from tests.chat.group import manager_of, said, speakers
from tests.chat.scripted import scripted

A, B, C = speakers()
D = scripted("d")


def test_transitions_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("svg")
    picture = tmp_path / "graph.svg"
    visualize_speaker_transitions_dict({A: [B], B: [A, B]}, [A, B, C], export_path=picture)
    assert "<svg" in picture.read_text()


def test_what_looks_like_a_mistake_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    graph: Any = {A: [B, B], B: [D]}
    with caplog.at_level(logging.WARNING):
        GroupChat(
            [A, B, C],
            [],
            allowed_or_disallowed_speaker_transitions=graph,
            speaker_transitions_type="allowed",
        )
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


def test_settings_that_autogen_does_not_check_are_refused() -> None:
    with pytest.raises(ValueError, match="names 'd', which is not in the group chat"):
        GroupChat([A, B, C], [], allow_repeat_speaker=[D])
    manager = manager_of(speakers(), speaker_selection_method=5)
    with pytest.raises(ValueError, match="is set to '5'. It should be one of"):
        scripted("outside").initiate_chat(manager, message="go")
