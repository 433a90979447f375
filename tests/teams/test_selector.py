"""SelectorGroupChat: who may be chosen, and what happens after an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock import CancellationToken
from cellblock.agents import TaskResult
from cellblock.models import ModelInfo, ReplayChatCompletionClient, SystemMessage, UserMessage
from cellblock.teams import SelectorGroupChat

from .scripted_agent import ScriptedAgent


def sources(result: TaskResult) -> list[str]:
    return [message.source for message in result.messages]


def create(answers: list[str], **arguments: Any) -> SelectorGroupChat:
    agents = [ScriptedAgent(name, *["said"] * 9) for name in ("ann", "bob", "cid")]
    return SelectorGroupChat(agents, ReplayChatCompletionClient(answers), **arguments)


def test_a_speaker_chosen_by_the_function_is_not_repeated_by_the_model() -> None:
    def first(messages: Any) -> str | None:
        return "bob" if len(messages) == 1 else None

    team = create(["bob", "cid"], selector_func=first, max_turns=2)
    assert sources(asyncio.run(team.run(task="go"))) == ["user", "bob", "cid"]


def test_only_a_candidate_is_accepted() -> None:
    model = ReplayChatCompletionClient(["ann", "cid"])
    agents = [ScriptedAgent(name, "said") for name in ("ann", "bob", "cid")]
    team = SelectorGroupChat(
        agents, model, candidate_func=lambda messages: ["bob", "cid"], max_turns=1
    )
    assert sources(asyncio.run(team.run(task="go"))) == ["user", "cid"]
    answer, feedback = model.create_calls[1]["messages"][-2:]
    assert answer.content == "ann"
    assert feedback.content == "ann cannot be selected. Please select from: ['bob', 'cid']."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"selector_prompt": "{foo}"}, "selector_prompt cannot be filled in: 'foo'"),
        ({"max_selector_attempts": 0}, "max_selector_attempts must be at least 1, not 0"),
        ({"model_client": "gpt-4o"}, "model_client must be a client such as"),
        ({"model_context": []}, "model_context must be a context such as"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, message: str) -> None:
    agents = [ScriptedAgent("ann"), ScriptedAgent("bob")]
    all_arguments: dict[str, Any] = {"model_client": ReplayChatCompletionClient([]), **arguments}
    with pytest.raises(ValueError, match=message):
        SelectorGroupChat(agents, **all_arguments)


def test_it_is_logged_who_speaks_without_a_choice(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(create(["nobody"] * 3, max_turns=1).run(task="go"))
    assert "The model chose no speaker in 3 attempts: ann speaks." in caplog.messages


def test_without_a_choice_the_last_speaker_speaks_again_unless_it_is_no_candidate() -> None:
    def not_bob(messages: Any) -> list[str]:
        return ["bob"] if len(messages) == 1 else ["ann", "cid"]

    answers = ["nobody"] * 3
    team = create(["bob", *answers], max_turns=2)
    assert sources(asyncio.run(team.run(task="go"))) == ["user", "bob", "bob"]
    team = create(answers, max_turns=2, candidate_func=not_bob)
    assert sources(asyncio.run(team.run(task="go"))) == ["user", "bob", "ann"]


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("bob", "bob"),
        ("**bob**.", "bob"),
        ("bobby", "ann"),
        ("Bob", "ann"),
        ("bob, I mean bob", "bob"),
        ("bob or cid", "ann"),
        ("", "ann"),
    ],
)
def test_a_name_counts_if_it_is_mentioned_alone(answer: str, chosen: str) -> None:
    team = create([answer], max_selector_attempts=1, max_turns=1)
    assert sources(asyncio.run(team.run(task="go"))) == ["user", chosen]


@pytest.mark.parametrize(("family", "kind"), [("gpt-4o", SystemMessage), ("r1", UserMessage)])
def test_models_of_openai_are_asked_by_the_system(family: str, kind: type[Any]) -> None:
    info: ModelInfo = {**ReplayChatCompletionClient([]).model_info, "family": family}
    model = ReplayChatCompletionClient(["bob"], model_info=info)
    agents = [ScriptedAgent("ann", "said"), ScriptedAgent("bob", "said")]
    asyncio.run(SelectorGroupChat(agents, model, max_turns=1).run(task="go"))
    [question] = model.create_calls[0]["messages"]
    assert isinstance(question, kind)


def test_the_model_that_chooses_can_be_cancelled_and_asked_again() -> None:
    class Slow(ReplayChatCompletionClient):
        slow = True

        async def create(self, *args: Any, **arguments: Any) -> Any:
            if self.slow:
                self.slow = False
                asked.set()
                await asyncio.Event().wait()
            return await super().create(*args, **arguments)

    asked = asyncio.Event()

    async def scenario() -> None:
        agents = [ScriptedAgent("ann", "said"), ScriptedAgent("bob", "said")]
        team = SelectorGroupChat(agents, Slow(["bob"]), max_turns=1)
        token = CancellationToken()
        run = asyncio.create_task(team.run(task="go", cancellation_token=token))
        await asked.wait()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert sources(await team.run()) == ["bob"]

    asyncio.run(scenario())


async def test_after_loading_the_model_sees_the_loaded_conversation_only() -> None:
    team = create(["ann"], max_turns=1)
    await team.run(task="the loaded task")
    model = ReplayChatCompletionClient(["bob", "cid"])
    agents = [ScriptedAgent(name, "said", "said") for name in ("ann", "bob", "cid")]
    other = SelectorGroupChat(agents, model, max_turns=1)
    await other.run(task="the other task")
    await other.load_state(await team.save_state())
    await other.run()
    question = model.create_calls[1]["messages"][0].content
    assert "the loaded task" in question
    assert "the other task" not in question
