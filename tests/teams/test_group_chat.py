"""What all group chats do: go on after errors and cancellations, report, refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import BaseModel

from cellblock import CancellationToken
from cellblock.agents import (
    AgentMessage,
    BaseChatAgent,
    BaseTextChatMessage,
    ModelClientStreamingChunkEvent,
    Response,
    StructuredMessage,
    TaskResult,
    TextMessage,
)
from cellblock.errors import AgentError, ComponentError
from cellblock.message_runtime import SingleThreadedAgentRuntime
from cellblock.models import RequestUsage
from cellblock.teams import MaxMessageTermination, RoundRobinGroupChat, Team

from .scripted_agent import ScriptedAgent


def texts(result: TaskResult) -> list[str]:
    return [message.to_text() for message in result.messages]


async def cancel_token(token: CancellationToken, task: asyncio.Task[Any]) -> None:
    token.cancel()


async def cancel_task(token: CancellationToken, task: asyncio.Task[Any]) -> None:
    task.cancel()


Cancel = Callable[[CancellationToken, asyncio.Task[Any]], Coroutine[Any, Any, None]]


def test_an_exception_of_an_agent_is_raised_as_it_is() -> None:
    error = KeyError("broken")
    team = RoundRobinGroupChat([ScriptedAgent("a", error)], max_turns=1)
    with pytest.raises(KeyError) as caught:
        asyncio.run(team.run(task="go"))
    assert caught.value is error
    assert caught.value.__notes__ == ["It comes from the participant 'a'."]


async def test_after_an_exception_the_same_agent_takes_its_turn_again() -> None:
    a, b = ScriptedAgent("a", "one", "two"), ScriptedAgent("b", OSError("gone"), "better")
    team = RoundRobinGroupChat([a, b], max_turns=2)
    with pytest.raises(OSError, match="gone"):
        await team.run(task="go")
    assert texts(await team.run()) == ["better"]
    assert b.received == [["go", "one"], ["go", "one"]]
    assert a.received == [["go"]]


@pytest.mark.parametrize("cancel", [cancel_token, cancel_task])
@pytest.mark.parametrize("nested", [False, True])
async def test_a_cancelled_run_ends_at_once_and_the_team_can_go_on(
    cancel: Cancel, nested: bool
) -> None:
    waiting = asyncio.Event()
    agent = ScriptedAgent("a", waiting, "after all")
    team: Team = RoundRobinGroupChat([agent], max_turns=1)
    if nested:
        team = RoundRobinGroupChat([team], name="outer", max_turns=1)
    token = CancellationToken()
    task = asyncio.create_task(team.run(task="go", cancellation_token=token))
    await waiting.wait()
    await cancel(token, task)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent.log == ["closed"]
    assert texts(await team.run()) == ["after all"]
    assert agent.received[1] == agent.received[0]


async def test_a_cancelled_token_does_not_cancel_the_callers_task() -> None:
    waiting, token = asyncio.Event(), CancellationToken()
    team = RoundRobinGroupChat([ScriptedAgent("a", waiting)])

    async def cancel() -> None:
        await waiting.wait()
        token.cancel()

    cancelling = asyncio.create_task(cancel())
    with pytest.raises(asyncio.CancelledError):
        await team.run(task="go", cancellation_token=token)
    await cancelling
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_token_that_is_cancelled_already_starts_no_agent() -> None:
    agent, token = ScriptedAgent("a", "one"), CancellationToken()
    token.cancel()
    team = RoundRobinGroupChat([agent], max_turns=1)
    with pytest.raises(asyncio.CancelledError):
        await team.run(task="go", cancellation_token=token)
    assert agent.received == []


async def test_agents_that_never_wait_can_be_cancelled() -> None:
    team = RoundRobinGroupChat([ScriptedAgent("a", *["said"] * 1000)], max_turns=1000)
    token = CancellationToken()
    run = asyncio.create_task(team.run(task="go", cancellation_token=token))
    await asyncio.sleep(0)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_closing_the_stream_closes_the_agent() -> None:
    agent = ScriptedAgent("a", "one", "two")
    team = RoundRobinGroupChat([agent], max_turns=1)
    stream = team.run_stream(task="go")
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert agent.log == ["closed"]
    assert texts(await team.run()) == ["two"]


async def test_what_was_said_before_the_reader_stops_is_kept() -> None:
    a, b = ScriptedAgent("a", "one"), ScriptedAgent("b", "two", "three")
    team = RoundRobinGroupChat([a, b], termination_condition=MaxMessageTermination(3))
    async with aclosing(team.run_stream(task="go")) as stream:
        async for item in stream:
            if isinstance(item, TextMessage) and item.source == "a":
                break
    result = await team.run()
    assert texts(result) == ["two"]
    assert "current message count: 3" in str(result.stop_reason)
    assert b.received == [["go", "one"]]


async def test_a_reset_forgets_what_the_condition_has_not_seen() -> None:
    team = RoundRobinGroupChat(
        [ScriptedAgent("a", "one", "two")], termination_condition=MaxMessageTermination(2)
    )
    async with aclosing(team.run_stream(task="go")) as stream:
        async for item in stream:
            if isinstance(item, TextMessage) and item.source == "a":
                break
    await team.reset()
    assert texts(await team.run(task="again")) == ["again", "two"]


async def test_what_a_nested_team_said_before_an_error_is_kept() -> None:
    x, y = ScriptedAgent("x", "one"), ScriptedAgent("y", OSError("gone"), "two")
    inner = RoundRobinGroupChat([x, y], max_turns=2, name="inner")
    b = ScriptedAgent("b", "three")
    team = RoundRobinGroupChat([inner, b], termination_condition=MaxMessageTermination(4))
    with pytest.raises(OSError, match="gone"):
        await team.run(task="go")
    assert texts(await team.run()) == ["two", "three"]
    assert b.received == [["go", "one", "two"]]
    assert y.received == [["go", "one"], ["go", "one"]]


async def test_a_task_that_failed_may_be_given_again() -> None:
    a = ScriptedAgent("a", "one", OSError("gone"), "two")
    team = RoundRobinGroupChat([a], max_turns=2)
    task = TextMessage(content="go", source="user")
    with pytest.raises(OSError, match="gone"):
        await team.run(task=task)
    assert texts(await team.run(task=task)) == ["go", "two"]
    assert a.received == [["go"], [], []]


async def test_a_running_team_can_neither_run_nor_be_reset_nor_loaded() -> None:
    team = RoundRobinGroupChat([ScriptedAgent("a", "one")], max_turns=1)
    state = await team.save_state()
    stream = team.run_stream(task="go")
    await anext(stream)
    with pytest.raises(ValueError, match=r"already running.*close the stream.*aclosing"):
        await team.run(task="again")
    with pytest.raises(AgentError, match="must be stopped before it can be reset"):
        await team.reset()
    with pytest.raises(AgentError, match="must be stopped before it can be loaded"):
        await team.load_state(state)
    await stream.aclose()
    await team.reset()


async def test_pause_and_resume_reach_every_participant() -> None:
    a, b = ScriptedAgent("a"), ScriptedAgent("b")
    team = RoundRobinGroupChat([a, RoundRobinGroupChat([b])])
    await team.pause()
    await team.resume()
    assert a.log == b.log == ["pause", "resume"]


async def test_transient_events_are_streamed_but_neither_kept_nor_counted() -> None:
    team = RoundRobinGroupChat(
        [ScriptedAgent("a", "one", "two", "three")],
        termination_condition=MaxMessageTermination(3, include_agent_event=True),
    )
    items = [item async for item in team.run_stream(task="go")]
    names = [type(item).__name__ for item in items]
    turn = ["ModelClientStreamingChunkEvent", "TextMessage"]
    assert names == ["TextMessage", *turn, *turn, "TaskResult"]
    result = items[-1]
    assert isinstance(result, TaskResult)
    assert texts(result) == ["go", "one", "two"]


async def test_the_same_message_can_be_the_task_again_when_it_is_done() -> None:
    a = ScriptedAgent("a", "one", "two")
    team = RoundRobinGroupChat([a], max_turns=1)
    task = TextMessage(content="go", source="user")
    assert texts(await team.run(task=task)) == ["go", "one"]
    assert texts(await team.run(task=task)) == ["go", "two"]
    assert a.received == [["go"], ["go"]]


def test_transient_events_among_the_inner_messages_are_not_kept_either() -> None:
    class Careless(ScriptedAgent):
        async def on_messages_stream(
            self, messages: Any, cancellation_token: Any
        ) -> AsyncGenerator[AgentMessage | Response, None]:
            chunk = ModelClientStreamingChunkEvent(content="one", source=self.name)
            yield chunk
            message = TextMessage(content="one", source=self.name)
            yield Response(chat_message=message, inner_messages=[chunk])

    async def scenario() -> None:
        team = RoundRobinGroupChat([Careless("a")], max_turns=1)
        await team.run(task="go")
        manager = (await team.save_state())["agent_states"]["RoundRobinGroupChatManager"]
        assert [each["type"] for each in manager["message_thread"]] == ["TextMessage"] * 2

    asyncio.run(scenario())


class Note(BaseTextChatMessage):
    type: str = "Note"


class Fact(BaseModel):
    text: str


def test_a_message_class_must_be_known_to_the_team() -> None:
    note = Note(content="x", source="a")
    team = RoundRobinGroupChat([ScriptedAgent("a", note)], max_turns=1)
    with pytest.raises(ValueError, match=r"Note is not registered.*custom_message_types"):
        asyncio.run(team.run(task=note))
    with pytest.raises(AgentError, match=r"Note is not registered.*custom_message_types"):
        asyncio.run(team.run(task="go"))


def test_messages_of_an_own_class_are_saved_and_loaded() -> None:
    b = ScriptedAgent("b", "seen")

    def create(*steps: Note) -> RoundRobinGroupChat:
        return RoundRobinGroupChat(
            [ScriptedAgent("a", *steps), b],
            max_turns=1,
            custom_message_types=[Note],
        )

    async def scenario() -> None:
        team = create(Note(content="a note", source="a"))
        await team.run(task="go")
        other = create()
        await other.load_state(await team.save_state())
        assert texts(await other.run()) == ["seen"]
        assert b.received == [["go", "a note"]]

    asyncio.run(scenario())


def test_structured_messages_that_an_agent_produces_are_known() -> None:
    message = StructuredMessage[Fact](content=Fact(text="x"), source="a")
    agent = ScriptedAgent("a", message)
    agent.produces = [StructuredMessage[Fact]]
    team = RoundRobinGroupChat([agent], max_turns=1)
    assert asyncio.run(team.run(task="go")).messages[-1] == message


def test_a_structured_message_of_a_local_class_is_saved_and_loaded() -> None:
    class Local(BaseModel):
        text: str

    message = StructuredMessage[Local](content=Local(text="x"), source="a")

    def create(*steps: StructuredMessage[Local]) -> RoundRobinGroupChat:
        agent = ScriptedAgent("a", *steps)
        agent.produces = [StructuredMessage[Local]]
        return RoundRobinGroupChat([agent], max_turns=1)

    async def scenario() -> None:
        team, other = create(message), create()
        await team.run(task="go")
        await other.load_state(await team.save_state())
        assert await other.save_state() == await team.save_state()

    asyncio.run(scenario())


@pytest.mark.parametrize("state", [{}, "{}", {"agent_states": []}])
def test_a_state_of_something_else_is_an_error_of_one_line(state: Any) -> None:
    team = RoundRobinGroupChat([ScriptedAgent("a")])
    with pytest.raises(ValueError, match=r"^The state is not one of RoundRobin[^\n]*save_state"):
        asyncio.run(team.load_state(state))


async def test_a_state_that_does_not_fit_changes_nothing() -> None:
    team = RoundRobinGroupChat([ScriptedAgent("a", "one", "two")], max_turns=1)
    await team.run(task="go")
    state = await team.save_state()
    broken = {**state, "agent_states": dict(state["agent_states"])}
    broken["agent_states"]["RoundRobinGroupChatManager"] = {
        **state["agent_states"]["RoundRobinGroupChatManager"],
        "message_thread": [{"type": "os.system"}],
    }
    states: list[dict[str, Any]] = [{}, {"agent_states": {"a": {}}}, broken]
    for wrong in states:
        with pytest.raises(ValueError, match="agent_states|not found|Unknown message type"):
            await team.load_state(wrong)
    assert await team.save_state() == state


def test_wrong_arguments_are_refused() -> None:
    agent = ScriptedAgent("a")
    with pytest.raises(ValueError, match="greater than 0"):
        RoundRobinGroupChat([agent], max_turns=0)
    other: Any = "an agent"
    with pytest.raises(ValueError, match="must be an agent or a team, not 'an agent'"):
        RoundRobinGroupChat([other])
    condition: Any
    for condition in ("TERMINATE", MaxMessageTermination):
        with pytest.raises(ValueError, match="condition must be an object such as"):
            RoundRobinGroupChat([agent], termination_condition=condition)


def test_a_configuration_without_participants_is_refused() -> None:
    saved = {"provider": "cellblock.teams.RoundRobinGroupChat", "config": {"max_turns": 1}}
    with pytest.raises(ComponentError, match="must list participants"):
        RoundRobinGroupChat.load_component(saved)


@pytest.mark.parametrize("answer", ["text", None, TextMessage(content="x", source="b")])
def test_an_agent_that_returns_no_response_is_named(answer: Any) -> None:
    class Wrong(ScriptedAgent):
        on_messages_stream = BaseChatAgent.on_messages_stream

        async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
            return answer

    with pytest.raises(AgentError, match="b.on_messages must return a Response, not "):
        asyncio.run(Wrong("b").run(task="go"))


def test_an_agent_without_an_answer_is_named() -> None:
    class Silent(ScriptedAgent):
        async def on_messages_stream(
            self, messages: Any, cancellation_token: Any
        ) -> AsyncGenerator[AgentMessage | Response, None]:
            for message in messages[:0]:
                yield message

    team = RoundRobinGroupChat([Silent("quiet")], max_turns=1)
    with pytest.raises(AgentError, match="'quiet' did not end its turn"):
        asyncio.run(team.run(task="go"))


async def test_a_nested_team_counts_its_usage_and_messages_in_the_outer_conditions() -> None:
    usage = RequestUsage(1, 1)
    said = [TextMessage(content=text, source="a", models_usage=usage) for text in "xy"]
    inner = RoundRobinGroupChat([ScriptedAgent("a", *said)], max_turns=2, name="inner")
    outer = RoundRobinGroupChat([inner], termination_condition=MaxMessageTermination(3))
    result = await outer.run(task="go")
    assert texts(result) == ["go", "x", "y"]
    assert "current message count: 3" in str(result.stop_reason)


def test_a_runtime_is_accepted() -> None:
    runtime = SingleThreadedAgentRuntime()
    team = RoundRobinGroupChat([ScriptedAgent("a", "hi")], runtime=runtime, max_turns=1)
    assert len(asyncio.run(team.run(task="go")).messages) == 2
