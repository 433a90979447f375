"""A model selects the speaker of a group chat."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from cellblock.chat import AgentNameConflict, gather_usage_summary
from tests.chat.group import client_of, manager_of, replay, said, speakers
from tests.chat.own_client import OwnClient, own_model
from tests.chat.scripted import scripted


def talk(*answers: str, **options: Any) -> tuple[list[str], Any]:
    """Return what was said in a group chat whose model answers so, and the model."""
    agents = speakers(description="talks")
    config = replay(*answers)
    settings = {"speaker_selection_method": "auto", "max_round": 2, **options}
    manager = manager_of(agents, {"llm_config": config}, **settings)
    agents[0].initiate_chat(manager, message="go")
    return said(manager), client_of(config)


def test_a_call_without_its_result_is_not_sent_to_the_model() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "double", "arguments": "{}"}}
    a: Any = scripted("a")
    options = {"function_map": {"double": lambda: 2}}
    agents = [a, scripted("b", "b1", **options), scripted("c", "c1", **options)]
    config = replay("c")
    manager = manager_of(agents, {"llm_config": config}, max_round=2)
    manager.groupchat.speaker_selection_method = "auto"
    a.initiate_chat(manager, message={"content": "", "tool_calls": [call]})
    messages = client_of(config).create_calls[0]["messages"]
    assert "double" not in str(messages[1:])
    assert manager.last_speaker is agents[2]


class Named(OwnClient):
    """Names `c` as the next speaker."""

    def answer(self, params: Any) -> SimpleNamespace:
        return SimpleNamespace(content="c")


@pytest.mark.parametrize("classes", [Named, [Named]])
def test_a_model_client_of_the_user_selects(classes: Any) -> None:
    spoken, _ = talk(
        select_speaker_auto_llm_config=own_model(Named),
        select_speaker_auto_model_client_cls=classes,
    )
    assert spoken == ["go", "c1"]


def test_a_client_registered_with_the_manager_selects_and_its_cost_counts() -> None:
    agents = speakers()
    manager = manager_of(agents, {"llm_config": own_model(Named)}, max_round=2)
    manager.groupchat.speaker_selection_method = "auto"
    manager.register_model_client(Named)
    agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go", "c1"]
    usage = gather_usage_summary([manager])["usage_including_cached_inference"]
    assert usage["total_cost"] == 0.5


def test_without_a_model_the_next_agent_speaks_and_a_warning_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agents = speakers()
    manager = manager_of(agents, max_round=2, speaker_selection_method="auto")
    with caplog.at_level(logging.WARNING):
        agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go", "b1"]
    assert "no model can choose. Set llm_config of the GroupChatManager" in caplog.text


def test_a_name_that_two_agents_have_is_an_error() -> None:
    twins: list[Any] = [scripted("twin", "1"), scripted("twin", "2"), scripted("c", "3")]
    config = {"llm_config": replay("twin")}
    manager = manager_of(twins, config, speaker_selection_method="auto")
    with pytest.raises(AgentNameConflict, match="2 agents of the group chat have this name"):
        twins[2].initiate_chat(manager, message="go")
    assert said(manager) == ["go"]


def test_a_model_that_fails_leaves_the_transcript() -> None:
    agents = speakers()
    manager = manager_of(agents, {"llm_config": replay()}, speaker_selection_method="auto")
    with pytest.raises(Exception, match=r"(?i)no more"):
        agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go"]
