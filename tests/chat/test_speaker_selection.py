"""Who speaks next: by turn, by chance, by a person, by a function, by who can answer a call."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from cellblock.chat import Agent, GroupChat, IOStream, NoEligibleSpeaker
from tests.chat.console import ScriptedConsole, console
from tests.chat.group import manager_of, said, speakers


def names(agents: list[Agent], **options: Any) -> list[str]:
    """Return who spoke in a group chat."""
    manager = manager_of(agents, {"silent": True}, **{"max_round": 5, **options})
    first: Any = agents[0]
    first.initiate_chat(manager, message="go", silent=True)
    return [message["name"] for message in manager.groupchat.messages]


def test_chance_keeps_to_those_who_may_speak() -> None:
    for _ in range(20):
        spoken = names(speakers(), speaker_selection_method="random", allow_repeat_speaker=False)
        assert all(one != next_one for one, next_one in zip(spoken, spoken[1:], strict=False))


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


def test_two_agents_that_may_repeat_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        names(speakers("ab"), speaker_selection_method="random")
    assert "underpopulated with 2 agents" in caplog.text
