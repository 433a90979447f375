"""An agent of one's own answers a task."""

from collections.abc import AsyncGenerator
from typing import Any


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    class Echo(lib.BaseChatAgent):
        produced_message_types = (lib.TextMessage,)

        async def on_messages(self, messages: Any, cancellation_token: Any) -> Any:
            text = " ".join(message.to_model_text() for message in messages)
            return lib.Response(
                chat_message=lib.TextMessage(content=text, source=self.name),
                inner_messages=[lib.ThoughtEvent(content="hm", source=self.name)],
            )

        async def on_reset(self, cancellation_token: Any) -> None:
            pass

    agent = Echo("echo", "repeats")
    yield agent.name
    yield await agent.run(task="one")
    yield await agent.run(task=lib.TextMessage(content="two", source="me"))
    async for item in agent.run_stream(task="three", output_task_messages=False):
        yield item
    for wrong in ([], [1]):
        try:
            yield await agent.run(task=wrong)
        except ValueError as error:
            yield type(error).__name__
    try:
        Echo("not a name", "")
    except ValueError as error:
        yield error
