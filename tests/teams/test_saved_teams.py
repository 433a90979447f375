"""Teams and conditions are saved and loaded as components."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.agents import AssistantAgent, TextMessage
from cellblock.components import load_component
from cellblock.errors import ComponentError
from cellblock.models import BufferedChatCompletionContext, ReplayChatCompletionClient
from cellblock.teams import (
    BaseGroupChat,
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SourceMatchTermination,
    StopMessageTermination,
    Swarm,
    TerminationCondition,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)

from .scripted_agent import ScriptedAgent


def model(*answers: str) -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(list(answers))


def agents() -> list[AssistantAgent]:
    return [
        AssistantAgent("a", model("one", "more"), description="first"),
        AssistantAgent("b", model("two"), description="second"),
    ]


CONDITION = MaxMessageTermination(9) | (TextMentionTermination("x") & TimeoutTermination(1.5))


@pytest.mark.parametrize(
    "condition",
    [
        ExternalTermination(),
        FunctionCallTermination("look"),
        HandoffTermination("a"),
        MaxMessageTermination(3, include_agent_event=True),
        SourceMatchTermination(["a", "b"]),
        StopMessageTermination(),
        TextMentionTermination("x", sources=["a"]),
        TextMessageTermination("a"),
        TimeoutTermination(1.5),
        TokenUsageTermination(max_prompt_token=3),
        CONDITION,
    ],
)
def test_a_condition_is_loaded_as_it_was(condition: TerminationCondition) -> None:
    saved = condition.dump_component()
    loaded = TerminationCondition.load_component(saved.to_json())
    assert type(loaded) is type(condition)
    assert loaded.dump_component() == saved


def test_a_function_as_a_condition_cannot_be_saved() -> None:
    condition = FunctionalTermination(lambda messages: True) | MaxMessageTermination(1)
    with pytest.raises(ComponentError, match="FunctionalTermination cannot be saved"):
        condition.dump_component()


def test_a_condition_with_unknown_arguments_is_refused() -> None:
    saved = MaxMessageTermination(1).dump_component().to_dict()
    saved["config"]["max"] = 3
    with pytest.raises(ComponentError, match="max"):
        load_component(saved)


TEAMS: list[BaseGroupChat] = [
    RoundRobinGroupChat(
        agents(),
        name="t",
        description="d",
        max_turns=2,
        termination_condition=CONDITION,
        emit_team_events=True,
    ),
    RoundRobinGroupChat([RoundRobinGroupChat(agents(), max_turns=2, name="inner")], max_turns=1),
    SelectorGroupChat(
        agents(),
        model("b", "a"),
        max_turns=2,
        selector_prompt="{participants}",
        allow_repeated_speaker=True,
        max_selector_attempts=7,
        model_client_streaming=True,
        model_context=BufferedChatCompletionContext(5),
    ),
    Swarm(agents(), max_turns=2),
]


@pytest.mark.parametrize("team", TEAMS, ids=lambda team: team.name)
def test_a_team_is_loaded_as_it_was_and_runs(team: BaseGroupChat) -> None:
    saved = team.dump_component()
    loaded = load_component(saved.to_json())
    assert isinstance(loaded, BaseGroupChat)
    assert loaded.dump_component() == saved
    result = asyncio.run(loaded.run(task="go"))
    assert any(isinstance(each, TextMessage) and each.source != "user" for each in result.messages)


def select(messages: Any) -> str:
    return "a"


@pytest.mark.parametrize(
    "team",
    [
        SelectorGroupChat(agents(), model(), selector_func=select),
        SelectorGroupChat(agents(), model(), candidate_func=lambda messages: ["a"]),
        RoundRobinGroupChat(agents(), custom_message_types=[TextMessage]),
        RoundRobinGroupChat([ScriptedAgent("a")]),
    ],
)
def test_a_team_that_could_not_be_loaded_is_not_saved(team: BaseGroupChat) -> None:
    with pytest.raises(ComponentError, match="cannot be saved"):
        team.dump_component()


def test_only_agents_and_teams_are_loaded_as_participants() -> None:
    saved = TEAMS[0].dump_component().to_dict()
    saved["config"]["participants"] = [MaxMessageTermination(1).dump_component().to_dict()]
    with pytest.raises(ComponentError, match="cannot be a participant"):
        load_component(saved)
