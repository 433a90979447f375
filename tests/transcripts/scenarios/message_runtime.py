"""Agents of a runtime: a group chat by topic, requests by address, errors."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any


@dataclass
class Message:
    content: str


@dataclass
class Question:
    content: str


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    async for item in group_chat(lib):
        yield item
    async for item in requests(lib):
        yield item


async def group_chat(lib: Any) -> AsyncGenerator[Any, None]:
    log: list[str] = []

    @lib.default_subscription
    class Coder(lib.RoutedAgent):
        def __init__(self, model: Any) -> None:
            super().__init__("Writes code.")
            self._model = model
            self._history: list[Any] = []

        @lib.message_handler
        async def handle(self, message: Message, ctx: lib.MessageContext) -> None:
            log.append(f"{self.id} got {message.content!r} from {ctx.sender} by {ctx.topic_id}")
            self._history.append(lib.UserMessage(content=message.content, source="user"))
            answer = await self._model.create(self._history)
            await self.publish_message(Message(answer.content), lib.DefaultTopicId())

    @lib.default_subscription
    class Runner(lib.RoutedAgent):
        def __init__(self, executor: Any) -> None:
            super().__init__("Runs code.")
            self._executor = executor

        @lib.message_handler
        async def handle(self, message: Message, ctx: lib.MessageContext) -> None:
            log.append(f"{self.id} got {message.content!r} from {ctx.sender} by {ctx.topic_id}")
            if "```python" in message.content:
                code = message.content.split("```python\n")[1].split("```")[0]
                block = lib.CodeBlock(code=code, language="python")
                result = await self._executor.execute_code_blocks([block], ctx.cancellation_token)
                await self.publish_message(Message(result.output), lib.DefaultTopicId())

    runtime = lib.SingleThreadedAgentRuntime()
    model = lib.ReplayChatCompletionClient(["```python\nprint(6 * 7)\n```", "Done."])
    async with lib.LocalCommandLineCodeExecutor() as executor:
        await Coder.register(runtime, "coder", lambda: Coder(model))
        await Runner.register(runtime, "runner", lambda: Runner(executor))
        runtime.start()
        await runtime.publish_message(Message("Six times seven?"), lib.DefaultTopicId())
        await runtime.stop_when_idle()
    yield log
    yield model.create_calls[1]["messages"][1].content


async def requests(lib: Any) -> AsyncGenerator[Any, None]:
    log: list[str] = []

    class Clerk(lib.RoutedAgent):
        def __init__(self) -> None:
            super().__init__("Answers.")
            self.asked = 0

        @lib.rpc
        async def answer(self, message: Question, ctx: lib.MessageContext) -> Message:
            self.asked += 1
            if message.content == "fail":
                raise ValueError("no answer")
            return Message(f"{message.content} {self.asked} {ctx.is_rpc}")

        @lib.event
        async def note(self, message: Message, ctx: lib.MessageContext) -> None:
            log.append(f"noted {message.content} {ctx.is_rpc}")

        async def save_state(self) -> Any:
            return {"asked": self.asked}

        async def load_state(self, state: Any) -> None:
            self.asked = state["asked"]

    runtime = lib.SingleThreadedAgentRuntime()
    await Clerk.register(runtime, "clerk", Clerk)
    await runtime.add_subscription(lib.TypeSubscription("notes", "clerk"))
    runtime.start()
    address = lib.AgentId("clerk", "one")
    yield await runtime.send_message(Question("why?"), address)
    yield await runtime.send_message(Question("why?"), lib.AgentId.from_str("clerk/one"))
    yield await runtime.send_message(Question("who?"), lib.AgentId("clerk", "two"))
    for wrong in (Question("fail"), Message("an event")):
        try:
            yield await runtime.send_message(wrong, address)
        except Exception as error:
            yield error
    await runtime.publish_message(Message("this"), lib.TopicId("notes", "one"))
    await runtime.stop_when_idle()
    yield log[-1]
    state = await runtime.save_state()
    yield state["clerk/one"]
    agent = await runtime.try_get_underlying_agent_instance(address, type=Clerk)
    yield agent.asked
    nobody = lib.AgentId("nobody", "x")
    for wrong in (
        runtime.register_factory("clerk", Clerk),
        runtime.try_get_underlying_agent_instance(nobody, type=Clerk),
        runtime.send_message(Question("?"), nobody),
    ):
        try:
            yield await wrong
        except Exception as error:
            yield error
