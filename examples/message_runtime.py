"""A coder and an executor as agents of a message runtime: each message goes to all of them.

python examples/message_runtime.py [--docker [IMAGE]] [--model NAME]
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from settings import Settings, read_settings

from cellblock import CodeExecutor, extract_code_blocks
from cellblock.message_runtime import (
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    default_subscription,
    message_handler,
)
from cellblock.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

TASK = "After how many years do 1000 euros at 3 % interest become more than 1500 euros?"
CODER = (
    "Write a Python program in a ```python block that prints the answer. You will be shown its "
    "output. Then answer in one sentence, without code."
)


@dataclass
class Message:
    """What the agents say to each other."""

    content: str


@default_subscription
class Coder(RoutedAgent):
    """Asks a model for code, and for the answer when the code has run."""

    def __init__(self, model_client: ChatCompletionClient) -> None:
        super().__init__("Writes code.")
        self._model_client = model_client
        self._history: list[LLMMessage] = [SystemMessage(content=CODER)]

    @message_handler
    async def handle_message(self, message: Message, ctx: MessageContext) -> None:
        self._history.append(UserMessage(content=message.content, source="user"))
        answer = await self._model_client.create(
            self._history, cancellation_token=ctx.cancellation_token
        )
        assert isinstance(answer.content, str)
        print(f"---------- {self.id.type} ----------\n{answer.content}")
        self._history.append(AssistantMessage(content=answer.content, source=self.id.type))
        await self.publish_message(Message(answer.content), DefaultTopicId())


@default_subscription
class Executor(RoutedAgent):
    """Runs the code in a message, and says nothing if there is none."""

    def __init__(self, code_executor: CodeExecutor) -> None:
        super().__init__("Runs code.")
        self._code_executor = code_executor

    @message_handler
    async def handle_message(self, message: Message, ctx: MessageContext) -> None:
        blocks = extract_code_blocks(message.content)
        if not blocks:
            return
        result = await self._code_executor.execute_code_blocks(
            blocks, cancellation_token=ctx.cancellation_token
        )
        print(f"---------- {self.id.type} ----------\n{result.output}")
        await self.publish_message(Message(result.output), DefaultTopicId())


async def main(settings: Settings) -> None:
    model = settings.model_client()
    runtime = SingleThreadedAgentRuntime()
    async with settings.executor() as executor:
        await Coder.register(runtime, "coder", lambda: Coder(model))
        await Executor.register(runtime, "executor", lambda: Executor(executor))
        runtime.start()
        await runtime.publish_message(Message(TASK), DefaultTopicId())
        await runtime.stop_when_idle()
    await model.close()


if __name__ == "__main__":
    asyncio.run(main(read_settings("message_runtime", __doc__)))
