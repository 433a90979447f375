"""Handoffs choose the speaker, to the caller and back; states; wrong targets."""

from collections.abc import AsyncGenerator
from typing import Any


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    class Passer(lib.BaseChatAgent):
        produced_message_types = (lib.HandoffMessage, lib.TextMessage)

        def __init__(self, name: str, *targets: str) -> None:
            super().__init__(name, "passes")
            self.targets = list(targets)

        async def on_messages(self, messages: Any, cancellation_token: Any) -> Any:
            seen = str([f"{each.source}:{each.to_model_text()}" for each in messages])
            target = self.targets.pop(0) if self.targets else ""
            message = (
                lib.HandoffMessage(content=seen, target=target, source=self.name)
                if target
                else lib.TextMessage(content=seen, source=self.name)
            )
            return lib.Response(chat_message=message)

        async def on_reset(self, cancellation_token: Any) -> None:
            pass

    def create() -> Any:
        return lib.Swarm(
            [Passer("a", "b", "c"), Passer("b", "", "a", "c"), Passer("c", "user", "a")],
            termination_condition=lib.HandoffTermination("user") | lib.MaxMessageTermination(9),
            emit_team_events=True,
        )

    team = create()
    yield team.name
    async for item in team.run_stream(task="start"):
        yield item
    state = await team.save_state()
    yield state["agent_states"]["SwarmGroupChatManager"]["current_speaker"]
    for task in ("to nobody", lib.HandoffMessage(content="x", target="nobody", source="user")):
        try:
            await team.run(task=task)
        except Exception as error:
            yield type(error).__name__
    back = lib.HandoffMessage(content="back", target="b", source="user")
    yield await team.run(task=back)
    team = create()
    await team.load_state(state)
    yield await team.run(task=back)
    await team.reset()
    yield await team.run(task="again")

    class Talker(Passer):
        produced_message_types = (lib.TextMessage,)

    try:
        lib.Swarm([Talker("a")])
    except ValueError as error:
        yield error
    try:
        lib.Swarm([team])
    except TypeError as error:
        yield type(error).__name__
