"""Spans of agents, teams, chats, models and tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from cellblock import CancellationToken, SandboxCommandLineCodeExecutor
from cellblock.agents import AssistantAgent, CodeExecutorAgent
from cellblock.chat import ConversableAgent
from cellblock.message_runtime import (
    AgentId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    message_handler,
)
from cellblock.models import (
    CassetteChatCompletionClient,
    ChatCompletionCache,
    ChatCompletionClient,
    CreateResult,
    FunctionCall,
    ModelInfo,
    OpenAIChatCompletionClient,
    ReplayChatCompletionClient,
    RequestUsage,
    UserMessage,
)
from cellblock.models.tool_schema import ToolSchema
from cellblock.teams import RoundRobinGroupChat
from cellblock.tools import ToolResult, Workbench
from tests.models.http_service import HTTPService, json_reply, stream_reply
from tests.tracing.recorded import Recorded, attributes, error_of

pytestmark = pytest.mark.anyio
HELLO = [UserMessage(content="Hello", source="user")]


def model(*answers: str | CreateResult) -> ReplayChatCompletionClient:
    """Return a model that can call tools."""
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=False,
        family="unknown",
        structured_output=False,
    )
    return ReplayChatCompletionClient(answers, info)


def calling(name: str, **arguments: Any) -> CreateResult:
    """Return the answer of a model that calls a tool."""
    call = FunctionCall("call-1", json.dumps(arguments), name)
    usage = RequestUsage(3, 5)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_runs_code(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor, stream: bool
) -> None:
    client = model("~~~python\nprint(6 * 7)\n~~~", "It is 42.")
    agent = CodeExecutorAgent(
        "coder", executor, model_client=client, model_client_stream=stream, description="Codes."
    )
    await agent.run(task="What is 6 times 7?")
    assert recorded.tree() == [
        "invoke_agent coder",
        "  chat",
        "  cellblock.run",
        "  chat",
    ]
    assert attributes(recorded.one("create_agent coder")) == {
        "gen_ai.operation.name": "create_agent",
        "gen_ai.provider.name": "cellblock",
        "gen_ai.agent.name": "coder",
        "gen_ai.agent.description": "Codes.",
    }
    assert attributes(recorded.one("invoke_agent coder")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "coder",
        "gen_ai.agent.description": "Codes.",
    }


async def test_a_team_whose_agent_calls_tools_with_spans_of_their_own(recorded: Recorded) -> None:
    def add(a: int, b: int) -> int:
        """Add numbers."""
        with trace.get_tracer("user").start_as_current_span("in a thread"):
            return a + b

    async def fail(a: int) -> int:
        """Fail."""
        raise LookupError("no")

    client = model(calling("add", a=1, b=2), calling("fail", a=3), "3")
    one = AssistantAgent("one", client, tools=[add, fail], max_tool_iterations=3)
    team = RoundRobinGroupChat([one, AssistantAgent("two", model("Yes."))], max_turns=2)
    await team.run(task="1 + 2?")
    assert recorded.tree() == [
        "invoke_workflow RoundRobinGroupChat",
        "  invoke_agent one",
        "    chat",
        "    execute_tool add",
        "      in a thread",
        "    chat",
        "    execute_tool fail",
        "    chat",
        "  invoke_agent two",
        "    chat",
    ]
    assert attributes(recorded.one("execute_tool add")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add numbers.",
        "gen_ai.tool.call.id": "call-1",
    }
    assert error_of(recorded.one("execute_tool fail")) == ("ERROR", "LookupError")
    request = next(each for each in recorded.all() if each.name == "chat")
    assert attributes(request)["gen_ai.usage.input_tokens"] == 3
    assert attributes(request)["gen_ai.usage.output_tokens"] == 5
    assert attributes(request)["gen_ai.response.finish_reasons"] == ("tool_call",)


class OtherWorkbench(Workbench):
    """A workbench whose tools are somewhere else. All of them fail."""

    async def list_tools(self) -> list[ToolSchema]:
        return [ToolSchema(name="far", description="Far away.")]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        return ToolResult(name=name, result=[], is_error=True)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def reset(self) -> None: ...
    async def load_state(self, state: Mapping[str, Any]) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {}


async def test_a_workbench_of_another_kind(recorded: Recorded) -> None:
    agent = AssistantAgent("one", model(calling("far")), workbench=OtherWorkbench())
    await agent.run(task="Work.")
    assert recorded.tree() == ["invoke_agent one", "  chat", "  execute_tool far"]
    assert error_of(recorded.one("execute_tool far")) == ("ERROR", "tool_error")


@pytest.mark.parametrize("how", ["token", "closed stream"])
def test_a_cancelled_agent_ends_its_spans(recorded: Recorded, how: str) -> None:
    token = CancellationToken()

    class Waiting(ReplayChatCompletionClient):
        async def create(self, *arguments: Any, **options: Any) -> CreateResult:
            token.cancel()
            await asyncio.Event().wait()
            raise AssertionError

    async def run() -> None:
        agent = AssistantAgent("one", model("He y"), model_client_stream=True)
        if how == "token":
            await AssistantAgent("one", Waiting([])).run(task="Hi", cancellation_token=token)
        stream = agent.run_stream(task="Hi", output_task_messages=False)
        async with contextlib.aclosing(stream):
            async for _ in stream:
                break

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())
    assert recorded.tree() == ["invoke_agent one", "  chat"]
    assert error_of(recorded.one("invoke_agent one")) == ("ERROR", "cancelled")
    assert error_of(recorded.one("chat")) == ("ERROR", "cancelled")


async def test_an_error_of_a_model_has_its_type_in_each_span_above(recorded: Recorded) -> None:
    team = RoundRobinGroupChat([AssistantAgent("one", model())], max_turns=1)
    with pytest.raises(ValueError, match="No more mock responses"):
        await team.run(task="Hi")
    assert recorded.tree() == [
        "invoke_workflow RoundRobinGroupChat",
        "  invoke_agent one",
        "    chat",
    ]
    for span in recorded.all():
        if not span.name.startswith("create_agent"):
            assert error_of(span) == ("ERROR", "ValueError")
            assert not span.events


def completion(text: str) -> dict[str, Any]:
    """Return an answer of a server that speaks OpenAI's protocol."""
    message = {"role": "assistant", "content": text}
    return {
        **{"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4o"},
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }


async def test_a_request_to_a_service(recorded: Recorded) -> None:
    async with HTTPService(json_reply(completion("Hey"))) as service:
        client = OpenAIChatCompletionClient(
            model="gpt-4o", api_key="key", base_url=service.url, temperature=0.5
        )
        await client.create(HELLO, extra_create_args={"max_tokens": 7})
        await client.close()
    [request] = recorded.all()
    assert request.name == "chat gpt-4o"
    assert request.kind is trace.SpanKind.CLIENT
    assert attributes(request) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 7,
        "server.address": "127.0.0.1",
        "server.port": int(service.url.rpartition(":")[2]),
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 3,
        "cellblock.cached": False,
    }


async def test_a_stream_that_breaks_off(recorded: Recorded) -> None:
    chunk = {**completion(""), "choices": [{"index": 0, "delta": {"content": "He"}}]}
    with contextlib.suppress(Exception):
        async with HTTPService(stream_reply(chunk, done=False)) as service:
            client = OpenAIChatCompletionClient(model="gpt-4o", api_key="k", base_url=service.url)
            async for _ in client.create_stream(HELLO):
                pass
            await client.close()
    request = recorded.one("chat gpt-4o")
    assert attributes(request)["gen_ai.request.stream"] is True
    assert "gen_ai.response.time_to_first_chunk" in attributes(request)
    assert request.status.status_code.name == "ERROR"


async def test_a_client_that_asks_another_has_one_span(recorded: Recorded, tmp_path: Path) -> None:
    inner = model("Hey", "Hey")
    client = ChatCompletionCache(CassetteChatCompletionClient(tmp_path / "c.json", inner))
    for _ in range(2):
        await client.create(HELLO)
    async for _ in inner.create_stream(HELLO):
        pass
    assert recorded.tree() == ["chat", "chat", "chat"]


async def test_a_client_of_a_user_has_spans(recorded: Recorded) -> None:
    class Shouting(ReplayChatCompletionClient):
        async def create(self, *arguments: Any, **options: Any) -> CreateResult:
            return await super().create(*arguments, **options)

        async def create_stream(
            self, *arguments: Any, **options: Any
        ) -> AsyncGenerator[str | CreateResult, None]:
            yield await super().create(*arguments, **options)

    client: ChatCompletionClient = Shouting(["a", "b"])
    await client.create(HELLO)
    async for _ in client.create_stream(HELLO):
        pass
    assert recorded.tree() == ["chat", "chat"]
    assert attributes(recorded.all()[0])["gen_ai.provider.name"] == "Shouting"


async def test_messages_between_agents_of_a_runtime(recorded: Recorded) -> None:
    class Relay(RoutedAgent):
        @message_handler
        async def relay(self, message: str, ctx: MessageContext) -> str:
            if self.id.key == "last":
                return message.upper()
            return await self.send_message(message, AgentId("relay", "last"))

    runtime = SingleThreadedAgentRuntime()
    await Relay.register(runtime, "relay", lambda: Relay("Relays."))
    runtime.start()
    with trace.get_tracer("caller").start_as_current_span("caller"):
        assert await runtime.send_message("x", AgentId("relay", "first")) == "X"
    await runtime.stop_when_idle()
    assert recorded.tree() == ["caller", "  invoke_agent relay", "    invoke_agent relay"]
    inner = recorded.all()[-1]
    assert attributes(inner)["gen_ai.agent.id"] == "relay/last"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_chat_of_autogen_2(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor, is_async: bool
) -> None:
    entry = {
        "model": "scripted",
        "model_client": model(calling("add", a=1), "~~~python\nprint(1)\n~~~", "TERMINATE"),
    }
    writer = ConversableAgent("writer", llm_config={"config_list": [entry]})
    runner = ConversableAgent(
        "runner",
        human_input_mode="NEVER",
        llm_config=False,
        code_execution_config={"executor": executor},
        is_termination_msg=lambda message: message["content"] == "TERMINATE",
    )

    def add(a: int) -> int:
        with trace.get_tracer("user").start_as_current_span("in the tool"):
            return a + 1

    runner.register_for_execution()(writer.register_for_llm(description="Adds.")(add))
    if is_async:
        asyncio.run(runner.a_initiate_chat(writer, message="Hi"))
    else:
        runner.initiate_chat(writer, message="Hi")
    assert recorded.tree() == [
        "invoke_workflow runner",
        "  invoke_agent writer",
        "    chat",
        "  invoke_agent runner",
        "    execute_tool add",
        "      in the tool",
        "  invoke_agent writer",
        "    chat",
        "  invoke_agent runner",
        "    cellblock.run",
        "  invoke_agent writer",
        "    chat",
        "  invoke_agent runner",
    ]


def say_everything(marker: str) -> None:
    """Let an agent, a tool, a model and a chat of AutoGen 0.2 say and get `marker`."""

    def echo(text: str) -> str:
        """Return the text."""
        if text == "fail":
            raise ValueError(marker)
        return text + marker

    client = model(calling("echo", text=marker), calling("echo", text="fail"), marker)
    agent = AssistantAgent(
        "one", client, tools=[echo], max_tool_iterations=3, system_message=marker
    )
    asyncio.run(RoundRobinGroupChat([agent], max_turns=1).run(task=marker))
    entry = {"model": "scripted", "model_client": model(marker)}
    writer = ConversableAgent("writer", llm_config={"config_list": [entry]})
    other = ConversableAgent("other", human_input_mode="NEVER", llm_config=False)
    other.initiate_chat(writer, message=marker, max_turns=1)


def test_no_content_unless_asked(recorded: Recorded) -> None:
    say_everything("MARKER")
    assert len(recorded.all()) == 11
    assert "MARKER" not in recorded.text()


def test_content_if_asked(with_content: Recorded) -> None:
    say_everything("MARKER")
    shown = {span.name: attributes(span) for span in with_content.all()}
    for name in ("invoke_workflow RoundRobinGroupChat", "invoke_agent one", "invoke_agent writer"):
        assert "MARKER" in str(shown[name]["gen_ai.input.messages"])
        assert "MARKER" in str(shown[name]["gen_ai.output.messages"])
    first = next(each for each in with_content.all() if each.name == "chat")
    assert json.loads(str(attributes(first)["gen_ai.input.messages"])) == [
        {"role": "system", "parts": [{"type": "text", "content": "MARKER"}]},
        {"role": "user", "parts": [{"type": "text", "content": "MARKER"}]},
    ]
    call = {"type": "tool_call", "id": "call-1", "name": "echo", "arguments": '{"text": "MARKER"}'}
    assert json.loads(str(attributes(first)["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
    ]
    one, other = (each for each in with_content.all() if each.name == "execute_tool echo")
    assert json.loads(str(attributes(one)["gen_ai.tool.call.arguments"])) == {"text": "MARKER"}
    assert attributes(one)["gen_ai.tool.call.result"] == "MARKERMARKER"
    [exception] = other.events
    assert (exception.attributes or {})["exception.message"] == "MARKER"
