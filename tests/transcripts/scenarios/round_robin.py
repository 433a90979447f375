"""Participants speak in turn; what each one receives; going on, resetting, saving, nesting."""

from collections.abc import AsyncGenerator
from typing import Any


def echo_class(lib: Any) -> Any:
    class Echo(lib.BaseChatAgent):
        produced_message_types = (lib.TextMessage,)
        calls = 0

        async def on_messages(self, messages: Any, cancellation_token: Any) -> Any:
            self.calls += 1
            seen = [f"{each.source}:{each.to_model_text()[:4]}" for each in messages]
            return lib.Response(
                chat_message=lib.TextMessage(content=f"{self.calls} {seen}", source=self.name),
                inner_messages=[lib.ThoughtEvent(content="hm", source=self.name)],
            )

        async def on_reset(self, cancellation_token: Any) -> None:
            self.calls = 0

    return Echo


def without_ids(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: without_ids(v) for k, v in state.items() if k not in {"id", "created_at"}}
    if isinstance(state, list):
        return [without_ids(each) for each in state]
    return state


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    echo = echo_class(lib)
    team = lib.RoundRobinGroupChat([echo("a", ""), echo("b", ""), echo("c", "")], max_turns=2)
    yield team.name
    yield team.description
    yield await team.run(task="one")
    yield await team.run()
    yield await team.run(task=[lib.TextMessage(content="two", source="me")])
    yield await team.run(task="three", output_task_messages=False)
    state = await team.save_state()
    yield without_ids(state)
    yield await team.run()
    other = lib.RoundRobinGroupChat([echo("a", ""), echo("b", ""), echo("c", "")], max_turns=2)
    await other.load_state(state)
    yield await other.run()
    await team.reset()
    yield await team.run(task="one")

    async for item in lib.RoundRobinGroupChat(
        [echo("a", ""), echo("b", "")],
        termination_condition=lib.TextMentionTermination("2 ") & lib.MaxMessageTermination(4),
        max_turns=9,
        emit_team_events=True,
    ).run_stream(task="one"):
        yield item

    team = lib.RoundRobinGroupChat(
        [echo("a", "")], termination_condition=lib.MaxMessageTermination(1)
    )
    yield await team.run(task="at once")
    condition = lib.MaxMessageTermination(1)
    team = lib.RoundRobinGroupChat([echo("a", "")], termination_condition=condition)
    await condition([lib.TextMessage(content="", source="")])
    yield await team.run(task="late")

    inner = lib.RoundRobinGroupChat(
        [echo("x", ""), echo("y", "")], max_turns=2, name="inner", description="two"
    )
    yield inner.name
    team = lib.RoundRobinGroupChat([echo("a", ""), inner], max_turns=4)
    yield await team.run(task="one")
    yield without_ids(await team.save_state())
    await team.reset()
    yield await team.run(task="again")

    for participants in ([], [echo("a", ""), echo("a", "")]):
        try:
            lib.RoundRobinGroupChat(participants)
        except ValueError as error:
            yield error
    for wrong in ([], [1]):
        try:
            yield await team.run(task=wrong)
        except ValueError as error:
            yield type(error).__name__
    try:
        await team.load_state({"agent_states": {}})
    except ValueError as error:
        yield error
