"""Messages reach agents by address and by topic; errors and cancellation reach the sender."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from cellblock import CancellationToken
from cellblock.message_runtime import (
    AgentId,
    DefaultInterventionHandler,
    DefaultSubscription,
    DefaultTopicId,
    DropMessage,
    MessageContext,
    MessageDroppedException,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    default_subscription,
    message_handler,
)


@dataclass
class Text:
    content: str


@dataclass
class Number:
    value: int


@default_subscription
class Recorder(RoutedAgent):
    """Record what it gets. Answer texts, fail on "fail", wait forever on "wait"."""

    def __init__(self, waits: asyncio.Event | None = None) -> None:
        super().__init__("Records.")
        self.seen: list[str] = []
        self.ended = False
        self._waits = waits or asyncio.Event()

    @message_handler
    async def record(self, message: Text | Number, ctx: MessageContext) -> str:
        self.seen.append(f"{message} from {ctx.sender}")
        if message == Text("fail"):
            raise ValueError("it failed")
        if message == Text("wait"):
            self._waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = True
        return f"got {message}"


def run_with_agents(
    work: Callable[[SingleThreadedAgentRuntime], Coroutine[Any, Any, None]],
    **options: Any,
) -> None:
    async def main() -> None:
        runtime = SingleThreadedAgentRuntime(**options)
        await Recorder.register(runtime, "recorder", Recorder)
        await work(runtime)
        await runtime.close()

    asyncio.run(asyncio.wait_for(main(), 30))


async def recorder(runtime: SingleThreadedAgentRuntime, key: str = "default") -> Recorder:
    agent_id = AgentId("recorder", key)
    return await runtime.try_get_underlying_agent_instance(agent_id, type=Recorder)


def test_each_source_of_a_topic_has_an_agent_of_its_own() -> None:
    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        runtime.start()
        await runtime.publish_message(Text("one"), DefaultTopicId())
        await runtime.publish_message(Number(2), DefaultTopicId(source="other"))
        await runtime.stop_when_idle()
        assert (await recorder(runtime)).seen == ["Text(content='one') from None"]
        assert (await recorder(runtime, "other")).seen == ["Number(value=2) from None"]

    run_with_agents(work)


def test_a_cancelled_token_ends_the_handler() -> None:
    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        runtime.start()
        token = CancellationToken()
        agent = await recorder(runtime)
        sending = asyncio.ensure_future(
            runtime.send_message(
                Text("wait"), AgentId("recorder", "default"), cancellation_token=token
            )
        )
        await agent._waits.wait()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await runtime.stop_when_idle()
        assert agent.ended

    run_with_agents(work)


def test_stop_ends_handlers_that_run() -> None:
    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        runtime.start()
        agent = await recorder(runtime)
        await runtime.publish_message(Text("wait"), DefaultTopicId())
        await agent._waits.wait()
        await runtime.stop()
        assert agent.ended
        runtime.start()
        assert await runtime.send_message(Number(1), agent.id) == "got Number(value=1)"
        await runtime.stop()
        with pytest.raises(RuntimeError, match="not started"):
            await runtime.stop()

    run_with_agents(work)


def test_an_error_that_nobody_waits_for_is_raised_if_it_is_not_ignored() -> None:
    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        runtime.start()
        await runtime.publish_message(Text("fail"), DefaultTopicId())
        with pytest.raises(ValueError, match="it failed"):
            await runtime.stop_when_idle()

    run_with_agents(work, ignore_unhandled_exceptions=False)


def test_an_error_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        runtime.start()
        await runtime.publish_message(Text("fail"), DefaultTopicId())
        await runtime.publish_message(Number(1), DefaultTopicId())
        await runtime.stop_when_idle()
        assert len((await recorder(runtime)).seen) == 2

    run_with_agents(work)
    assert "recorder/default failed on a message" in caplog.text


def test_a_handler_without_a_message_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"handle must have the parameters \(self, message"):

        @message_handler
        async def handle(self: object) -> None:
            pass


def test_a_handler_that_is_not_async_is_refused() -> None:
    def handle(self: object, message: Text, ctx: MessageContext) -> str:
        return ""

    decorate: Any = message_handler
    with pytest.raises(ValueError, match=r"handle must be async"):
        decorate(handle)


def test_an_answer_must_be_as_annotated_if_the_handler_is_strict() -> None:
    answer: Any = 3

    class Answerer(RoutedAgent):
        @message_handler
        async def text(self, message: Text, ctx: MessageContext) -> str | None:
            return answer

        @message_handler(strict=False)
        async def number(self, message: Number, ctx: MessageContext) -> str:
            return answer

    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        await Answerer.register(runtime, "answerer", lambda: Answerer("Answers."))
        runtime.start()
        address = AgentId("answerer", "a")
        assert await runtime.send_message(Number(1), address) == 3
        with pytest.raises(
            ValueError, match=r"Answerer.text returned 3, .* return str \| NoneType"
        ):
            await runtime.send_message(Text("x"), address)

    run_with_agents(work)


def test_wrong_addresses_and_factories_are_refused() -> None:
    text: Any = "shout"

    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        with pytest.raises(ValueError, match=r"recipient must be .*AgentId\('shout', 'default'\)"):
            await runtime.send_message(Text("x"), text)
        with pytest.raises(ValueError, match=r"topic_id must be .*TopicId\('shout', 'default'\)"):
            await runtime.publish_message(Text("x"), text)
        with pytest.raises(ValueError, match="factory of 'z' must be a function"):
            await Recorder.register(runtime, "z", text)

    run_with_agents(work)


def test_a_message_that_waits_or_is_not_handled_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(runtime: SingleThreadedAgentRuntime) -> None:
        answer = asyncio.create_task(runtime.send_message("text", AgentId("recorder", "a")))
        await asyncio.sleep(0)
        assert "A message to recorder/a waits" in caplog.text
        assert runtime.unprocessed_messages_count == 1
        runtime.start()
        assert await answer is None
        assert "recorder/a has no handler for a str." in caplog.text

    run_with_agents(work)


@pytest.mark.parametrize("text", ["noslash", "bad name/key"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid agent"):
        AgentId.from_str(text)


def test_a_default_subscription_takes_the_arguments_of_autogen() -> None:
    subscription = DefaultSubscription("news", "reader")

    assert (subscription.topic_type, subscription.agent_type) == ("news", "reader")
    assert DefaultSubscription(agent_type="reader").topic_type == "default"
    with pytest.raises(ValueError, match="agent_type"):
        DefaultSubscription()


# intervention handlers


class Censor(DefaultInterventionHandler):
    """Change, drop or refuse messages and answers, by their text."""

    async def on_send(
        self, message: Any, *, message_context: MessageContext, recipient: AgentId
    ) -> Any:
        assert (message_context.topic_id, recipient) == (None, AgentId("recorder", "default"))
        return self._changed(message)

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        assert message_context.topic_id is not None
        return self._changed(message)

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        return DropMessage if "secret" in message else f"{message}!"

    def _changed(self, message: Text) -> Any:
        match message.content:
            case "drop":
                return DropMessage()
            case "raise":
                raise ValueError("refused")
            case "nothing":
                return None
            case text:
                return Text(text.upper() if text == "shout" else text)


async def test_intervention_handlers_change_and_drop_messages_and_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = SingleThreadedAgentRuntime(intervention_handlers=[Censor()])
    await Recorder.register(runtime, "recorder", Recorder)
    runtime.start()
    recorder = AgentId("recorder", "default")
    assert await runtime.send_message(Text("shout"), recorder) == f"got {Text('SHOUT')}!"
    for text, error in (("drop", MessageDroppedException), ("secret", MessageDroppedException)):
        with pytest.raises(error, match="Censor dropped"):
            await runtime.send_message(Text(text), recorder)
    with pytest.raises(ValueError, match="refused"):
        await runtime.send_message(Text("raise"), recorder)
    with pytest.warns(RuntimeWarning, match="on_send returned None"):
        await runtime.send_message(Text("nothing"), recorder)
    for text in ("drop", "raise", "shout"):
        await runtime.publish_message(Text(text), DefaultTopicId())
    await runtime.stop_when_idle()
    agent = await runtime.try_get_underlying_agent_instance(recorder, Recorder)
    texts = ["SHOUT", "secret", "nothing", "SHOUT"]
    assert agent.seen == [f"{Text(text)} from None" for text in texts]
    assert "refused" in caplog.text
    await runtime.close()
