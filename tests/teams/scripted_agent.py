"""An agent of one's own whose answers are written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from cellblock import CancellationToken
from cellblock.agents import (
    AgentMessage,
    BaseChatAgent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    Response,
    TextMessage,
)

Step = str | BaseChatMessage | Exception | asyncio.Event


class ScriptedAgent(BaseChatAgent):
    """Take one step for each turn: answer, raise, or set the event and wait for ever.

    `received` has the texts of each turn. `log` has the calls of the other methods.
    """

    def __init__(self, name: str, *steps: Step) -> None:
        super().__init__(name, f"the agent {name}")
        self._steps = list(steps)
        self.produces: list[type[BaseChatMessage]] = [TextMessage]
        self.received: list[list[str]] = []
        self.log: list[str] = []

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return self.produces

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        raise AssertionError("a team streams")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        self.received.append([message.to_model_text() for message in messages])
        step = self._steps.pop(0)
        try:
            yield ModelClientStreamingChunkEvent(content="…", source=self.name)
            match step:
                case str():
                    yield Response(chat_message=TextMessage(content=step, source=self.name))
                case BaseChatMessage():
                    yield Response(chat_message=step)
                case asyncio.Event():
                    step.set()
                    await asyncio.Event().wait()
                case Exception():
                    raise step
        finally:
            self.log.append("closed")

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.log.append("reset")

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        self.log.append("pause")

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        self.log.append("resume")
