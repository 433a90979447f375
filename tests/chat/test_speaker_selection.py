"""Who speaks next: by turn, by chance, by a person, by a function, by who can answer a call."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cellblock.chat import Agent, GroupChat, IOStream, NoEligibleSpeaker, UndefinedNextAgent
from tests.chat.console import ScriptedConsole, console
from tests.chat.group import manager_of, said, speaker, speakers


def double(x: int) -> int:
    return 2 * x


def names(agents: list[Agent], **options: Any) -> list[str]:
    """Return who spoke in a group chat."""
    manager = manager_of(agents, {"silent": True}, **{"max_round": 5, **options})
    first: Any = agents[0]
    first.initiate_chat(manager, message="go", silent=True)
    return [message["name"] for message in manager.groupchat.messages]


def test_turns_follow_the_list_and_begin_again() -> None:
    assert names(speakers()) == ["a", "b", "c", "a", "b"]
    assert names(speakers(), speaker_selection_method="ROUND_ROBIN") == ["a", "b", "c", "a", "b"]


def test_the_next_agent_is_the_first_behind_that_is_allowed() -> None:
    a, b, c = speakers()
    outside: Any = speaker("outside")
    chat = GroupChat([a, b, c], [])
    assert [chat.next_agent(a), chat.next_agent(c), chat.next_agent(outside)] == [b, a, a]
    assert [chat.next_agent(a, [a]), chat.next_agent(b, [a, c])] == [a, c]
    for candidates in ([], [outside], [outside, b]):
        with pytest.raises(UndefinedNextAgent):
            chat.next_agent(a, candidates)


def test_agents_with_the_same_name_speak_in_turn() -> None:
    twins = [speaker("twin", "1"), speaker("twin", "2"), speaker("c", "3")]
    manager = manager_of([*twins], max_round=3)
    twins[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go", "2", "3"]


def test_chance_keeps_to_those_who_may_speak() -> None:
    for _ in range(20):
        spoken = names(speakers(), speaker_selection_method="random", allow_repeat_speaker=False)
        assert all(one != next_one for one, next_one in zip(spoken, spoken[1:], strict=False))


FUNCTIONS: list[tuple[Callable[[Any, Any], Any], list[str]]] = [
    (lambda last, chat: chat.agents[2], ["a", "c", "c", "c", "c"]),
    (lambda last, chat: None, ["a"]),
    (lambda last, chat: "round_robin", ["a", "b", "c", "a", "b"]),
    (lambda last, chat: chat.agents[1] if len(chat.messages) < 2 else None, ["a", "b"]),
]


@pytest.mark.parametrize(("function", "expected"), FUNCTIONS)
def test_a_function_names_the_speaker_the_method_or_the_end(
    function: Any, expected: list[str]
) -> None:
    assert names(speakers(), speaker_selection_method=function) == expected


SELECT_NOBODY: list[tuple[Callable[[Any, Any], Any] | str | int, str]] = [
    (lambda last, chat: 5, "returned an object of type <class 'int'> instead of Agent or str"),
    (lambda last, chat: speaker("stranger"), "returned an agent stranger not in the group"),
    (lambda last, chat: "other", "is set to 'other'. It should be one of"),
    ("other", "is set to 'other'. It should be one of"),
    (5, "is set to '5'. It should be one of"),
]


@pytest.mark.parametrize(("method", "error"), SELECT_NOBODY)
def test_what_selects_nobody_is_an_error_that_says_what_it_was(method: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        names(speakers(), speaker_selection_method=method)


def test_a_subclass_can_select_the_speaker() -> None:
    class LastFirst(GroupChat):
        def select_speaker(self, last_speaker: Agent, selector: Any) -> Agent:
            if len(self.messages) > 2:
                raise NoEligibleSpeaker
            return self.agents[-1]

    a, b, c = speakers()
    manager = manager_of([a, b, c])
    manager = type(manager)(LastFirst([a, b, c], []))
    a.initiate_chat(manager, message="go")
    assert said(manager) == ["go", "c1", "c2"]


def test_a_person_selects_by_number_and_can_leave_it_to_the_model() -> None:
    with console("3", "", "0", "x", "q") as stream:
        assert names(speakers(), speaker_selection_method="manual") == ["a", "c", "a", "b", "c"]
    assert stream.text.count("1: a\n2: b\n3: c\n") == 4
    assert stream.text.count("Please enter a number between 1 and 3.") == 2
    assert "You have tried 3 times." in stream.text


def test_the_end_of_input_in_the_prompt_leaves_the_transcript() -> None:
    agents = speakers()
    manager = manager_of(agents, speaker_selection_method="manual")
    with console("2"), pytest.raises(EOFError):
        agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go", "b1"]


def test_a_person_who_selects_does_not_block_the_loop() -> None:
    asked, ticked = threading.Event(), threading.Event()

    class Waits(ScriptedConsole):
        def input(self, prompt: str = "", *, password: bool = False) -> str:
            asked.set()
            assert ticked.wait(60), "The loop is blocked."
            return "2"

    async def tick() -> None:
        while not asked.is_set():
            await asyncio.sleep(0.01)
        ticked.set()

    async def talk() -> None:
        await asyncio.gather(agents[0].a_initiate_chat(manager, message="go"), tick())

    agents = speakers()
    manager = manager_of(agents, max_round=2, speaker_selection_method="manual")
    with IOStream.set_default(Waits()):
        asyncio.run(talk())
    assert said(manager) == ["go", "b1"]


@pytest.mark.parametrize(
    ("filtered", "able", "expected"),
    [
        (True, "c", ["a", "caller", "c", "a"]),
        (True, "bc", ["a", "caller", "b", "c"]),
        (False, "c", ["a", "caller", "b", "c"]),
    ],
)
def test_after_a_tool_call_only_those_who_can_answer_speak(
    filtered: bool, able: str, expected: list[str]
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "double", "arguments": '{"x": 2}'}}
    a, b, c = agents = speakers()
    for agent in agents:
        if agent.name in able:
            agent.register_function({"double": double})
    caller = speaker("caller", {"content": None, "tool_calls": [call]})
    assert names([a, caller, b, c], func_call_filter=filtered, max_round=4) == expected


def test_a_call_that_nobody_can_answer_is_an_error() -> None:
    call = {"name": "double", "arguments": "{}"}
    caller = speaker("caller", {"content": None, "function_call": call})
    with pytest.raises(ValueError, match="No agent can execute the function double"):
        names([speaker("a"), caller])


@pytest.mark.parametrize("able", ["c", "cd"])
def test_the_result_of_a_call_comes_whatever_the_transitions_are(able: str) -> None:
    call = {"name": "double", "arguments": '{"x": 2}'}
    a = speaker("a")
    helpers = [speaker(name, function_map={"double": double}) for name in able]
    caller = speaker("caller", {"content": None, "function_call": call}, "thanks")
    graph = {a: [caller], caller: [a], **{helper: [caller] for helper in helpers}}
    spoken = names(
        [a, caller, *helpers],
        max_round=4,
        allowed_or_disallowed_speaker_transitions=graph,
        speaker_transitions_type="allowed",
    )
    assert spoken == ["a", "caller", "double", "caller"]  # a function result has its name


def test_two_agents_that_may_repeat_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        names(speakers("ab"), speaker_selection_method="random")
    assert "underpopulated with 2 agents" in caplog.text
