"""AssistantAgent: a model that answers, and may call tools."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel

from ..cancellation import CancellationToken
from ..errors import ComponentError, ModelOutputError
from ..models.client import ChatCompletionClient, ToolChoice
from ..models.contexts import ChatCompletionContext
from ..models.messages import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    SystemMessage,
)
from ..models.structured_output import checked_output
from ..models.tool_schema import ToolLike
from ..tools.base import BaseTool
from ..tools.workbench import Workbench
from .agent_tools import AgentTool, ToolOutcome, collect_tools
from .base import BaseChatAgent, Response
from .context import add_to_context, context_or_default, saved_context
from .handoff import Handoff
from .messages import (
    AgentMessage,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from .model_calls import (
    ask_model,
    check_model_client,
    check_system_message,
    cut_off_metadata,
)
from .tool_messages import SummaryFormatter, exchange, find_handoff, summarize, summary_formatter


class AssistantAgent(BaseChatAgent):
    """An agent that asks a model, and calls the tools that the model requests.

    The answer is a `TextMessage`, or a `StructuredMessage` with `output_content_type`. If the model
    still calls tools after `max_tool_iterations`, the answer is a `ToolCallSummaryMessage`, or with
    `reflect_on_tool_use` what the model says about the results. If it hands over, the answer is a
    `HandoffMessage`. A text that is cut off has the metadata "finish_reason", and its code is not
    run by a `CodeExecutorAgent`.

    tools                        tools, or functions that become tools
    workbench                    one or several sets of tools, instead of `tools`
    handoffs                     agents that the model may hand over to
    model_context                the conversation that the model sees; None means everything
    system_message               instructions for the model; None means no instructions
    model_client_stream          yield the answer in pieces
    reflect_on_tool_use          None means only with `output_content_type`
    max_tool_iterations          how often the model may call tools before the answer
    tool_call_summary_format     one result in a summary, with {tool_name}, {arguments}, {result}
                                 and {is_error}
    tool_call_summary_formatter  a function instead of the format
    output_content_type          the pydantic class of the answer
    output_content_type_format   how the answer becomes text, such as "{name} is {age}"
    memory                       must be None: put what the agent should know into `model_context`
    metadata                     for the caller

    Raise `ValueError` for a wrong argument, or if the model cannot call tools and there are some.
    """

    component_version: ClassVar[int] = 2

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        tools: Sequence[AgentTool] | None = None,
        workbench: Workbench | Sequence[Workbench] | None = None,
        handoffs: Sequence[Handoff | str] | None = None,
        model_context: ChatCompletionContext | None = None,
        description: str = "An agent that provides assistance with ability to use tools.",
        system_message: str | None = (
            "You are a helpful AI assistant. Solve tasks using your tools. "
            "Reply with TERMINATE when the task has been completed."
        ),
        model_client_stream: bool = False,
        reflect_on_tool_use: bool | None = None,
        max_tool_iterations: int = 1,
        tool_call_summary_format: str = "{result}",
        tool_call_summary_formatter: SummaryFormatter | None = None,
        output_content_type: type[BaseModel] | None = None,
        output_content_type_format: str | None = None,
        memory: None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, description)
        if memory is not None:
            raise ValueError(
                "An AssistantAgent has no memory. Put what it should know into model_context."
            )
        if max_tool_iterations < 1:
            raise ValueError(
                "Maximum number of tool iterations must be greater than or equal to 1, "
                f"got {max_tool_iterations}"
            )
        check_model_client(model_client)
        check_system_message(system_message)
        _check_output_type(output_content_type)
        can_call = model_client.model_info["function_calling"]
        if tools and not can_call:
            raise ValueError("The model does not support function calling.")
        if handoffs and not can_call:
            raise ValueError(
                "The model does not support function calling, which is needed for handoffs."
            )
        self._model_client = model_client
        self._tools = collect_tools(tools, workbench, handoffs)
        self._model_context = context_or_default(model_context)
        self._system_message = system_message
        self._model_client_stream = model_client_stream
        self._reflect_on_tool_use = (
            output_content_type is not None if reflect_on_tool_use is None else reflect_on_tool_use
        )
        self._max_tool_iterations = max_tool_iterations
        self._tool_call_summary_format = tool_call_summary_format
        self._tool_call_summary_formatter = tool_call_summary_formatter
        self._output_content_type = output_content_type
        self._output_content_type_format = output_content_type_format
        self._metadata = dict(metadata or {})
        # Messages in the context that were not answered. If a turn fails, they may come again.
        self._unanswered: set[str] = set()

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the answers."""
        structured = (
            [StructuredMessage[self._output_content_type]] if self._output_content_type else []
        )
        return [TextMessage, ToolCallSummaryMessage, HandoffMessage, *structured]

    @property
    def model_context(self) -> ChatCompletionContext:
        """The conversation that the model sees."""
        return self._model_context

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Answer `messages`."""
        async for item in self.on_messages_stream(messages, cancellation_token):
            if isinstance(item, Response):
                return item
        raise AssertionError("on_messages_stream ends with a Response")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield events, and the answer to `messages` last.

        Raise `ModelOutputError` if the model's answer is not what was requested, and `AgentError`
        if the agent is running already.
        """
        with self._one_run.running():
            async with aclosing(self._run(messages, cancellation_token)) as items:
                async for item in items:
                    yield item

    async def _run(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        await self._receive(messages)
        inner: list[AgentMessage] = []
        outcomes: list[ToolOutcome] = []
        for _ in range(self._max_tool_iterations):
            message_id = str(uuid.uuid4())
            result: CreateResult | None = None
            context = await self._model_context.get_messages()
            tools = await self._tools.list_tools()
            async with aclosing(
                self._ask(message_id, cancellation_token, context, tools=tools)
            ) as asking:
                async for item in asking:
                    if isinstance(item, CreateResult):
                        result = item
                    else:
                        yield item
            assert result is not None
            if result.thought:
                inner.append(ThoughtEvent(content=result.thought, source=self.name))
                yield inner[-1]
            if isinstance(result.content, str):
                yield await self._answer(result, message_id, inner)
                return
            inner.append(
                ToolCallRequestEvent(
                    content=result.content, source=self.name, models_usage=result.usage
                )
            )
            yield inner[-1]
            outcomes = await self._tools.call(result.content, cancellation_token)
            # Together, so that the context is never left with calls that have no results.
            await self._remember(exchange(outcomes, result.thought, self.name))
            inner.append(
                ToolCallExecutionEvent(
                    content=[outcome.result for outcome in outcomes], source=self.name
                )
            )
            yield inner[-1]
            handoff = find_handoff(outcomes, result.thought, self._tools.handoffs, self.name)
            if handoff is not None:
                yield self._respond(handoff, inner)
                return
        if not self._reflect_on_tool_use:
            yield self._respond(self._summarize(outcomes), inner)
            return
        async with aclosing(self._reflect(inner, cancellation_token)) as reflection:
            async for item in reflection:
                yield item

    async def _receive(self, messages: Sequence[BaseChatMessage]) -> None:
        new = [message for message in messages if message.id not in self._unanswered]
        await add_to_context(self._model_context, new)
        self._unanswered |= {message.id for message in new}

    async def _remember(self, messages: Sequence[LLMMessage]) -> None:
        for message in messages:
            await self._model_context.add_message(message)

    def _ask(
        self,
        message_id: str,
        token: CancellationToken,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[ToolLike] = (),
        tool_choice: ToolChoice = "auto",
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent | CreateResult, None]:
        instructions = (
            [] if self._system_message is None else [SystemMessage(content=self._system_message)]
        )
        return ask_model(
            self._model_client,
            [*instructions, *messages],
            stream=self._model_client_stream,
            source=self.name,
            message_id=message_id,
            token=token,
            tools=tools,
            tool_choice=tool_choice,
            json_output=self._output_content_type,
        )

    async def _reflect(
        self, inner: list[AgentMessage], token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Ask the model once more, without tools, for the answer."""
        message_id = str(uuid.uuid4())
        messages = await self._model_context.get_messages()
        async with aclosing(self._ask(message_id, token, messages, tool_choice="none")) as asking:
            async for item in asking:
                if not isinstance(item, CreateResult):
                    yield item
                    continue
                if item.thought:
                    inner.append(ThoughtEvent(content=item.thought, source=self.name))
                    yield inner[-1]
                if not isinstance(item.content, str):
                    raise ModelOutputError("Reflect on tool use produced no valid text response.")
                yield await self._answer(item, message_id, inner)

    async def _answer(
        self, result: CreateResult, message_id: str, inner: list[AgentMessage]
    ) -> Response:
        """Return the text of `result` as the answer, and remember it."""
        assert isinstance(result.content, str)
        await self._remember(
            [AssistantMessage(content=result.content, source=self.name, thought=result.thought)]
        )
        message: BaseChatMessage
        if self._output_content_type is None:
            message = TextMessage(
                content=result.content,
                source=self.name,
                models_usage=result.usage,
                id=message_id,
                metadata=cut_off_metadata(result),
            )
        else:
            message = StructuredMessage[self._output_content_type](
                content=_parse(result, self._output_content_type),
                format_string=self._output_content_type_format,
                source=self.name,
                models_usage=result.usage,
                id=message_id,
            )
        return self._respond(message, inner)

    def _respond(self, message: BaseChatMessage, inner: list[AgentMessage]) -> Response:
        self._unanswered.clear()
        return Response(chat_message=message, inner_messages=inner)

    def _summarize(self, outcomes: Sequence[ToolOutcome]) -> ToolCallSummaryMessage:
        formatter = self._tool_call_summary_formatter or summary_formatter(
            self._tool_call_summary_format
        )
        return summarize(outcomes, formatter, self.name)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation."""
        await self._model_context.clear()
        self._unanswered.clear()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation."""
        context = await self._model_context.save_state()
        return {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": dict(context)}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned. Raise `ValueError` if it is something else."""
        await self._model_context.load_state(saved_context(state, self.name))
        self._unanswered.clear()

    def _to_config(self) -> dict[str, object]:
        for name, value in (
            ("output_content_type", self._output_content_type),
            ("tool_call_summary_formatter", self._tool_call_summary_formatter),
        ):
            if value is not None:
                raise ComponentError(f"The agent {self.name!r} cannot be saved: it has {name}.")
        return {
            "name": self.name,
            "model_client": self._model_client.dump_component().to_dict(),
            "workbench": [each.dump_component().to_dict() for each in self._tools.workbenches],
            "handoffs": [each.model_dump() for each in self._tools.handoffs.values()],
            "model_context": self._model_context.dump_component().to_dict(),
            "description": self.description,
            "system_message": self._system_message,
            "model_client_stream": self._model_client_stream,
            "reflect_on_tool_use": self._reflect_on_tool_use,
            "max_tool_iterations": self._max_tool_iterations,
            "tool_call_summary_format": self._tool_call_summary_format,
            "metadata": self._metadata,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        arguments: dict[str, Any] = dict(config)
        # Configurations of AutoGen have it.
        if arguments.pop("structured_message_factory", None) is not None:
            raise ComponentError(
                "The agent has a saved output_content_type. Create it yourself, with the class."
            )
        arguments["model_client"] = ChatCompletionClient.load_component(arguments["model_client"])
        for name, kind in (("workbench", Workbench), ("tools", BaseTool)):
            if arguments.get(name) is not None:
                saved = cast(list[Any], arguments[name])
                arguments[name] = [kind.load_component(each) for each in saved]
        if arguments.get("model_context") is not None:
            arguments["model_context"] = ChatCompletionContext.load_component(
                arguments["model_context"]
            )
        if arguments.get("handoffs") is not None:
            saved = cast(list[Any], arguments["handoffs"])
            arguments["handoffs"] = [
                each if isinstance(each, str) else Handoff.model_validate(each) for each in saved
            ]
        return cls(**arguments)


def _parse(result: CreateResult, output_type: type[BaseModel]) -> BaseModel:
    text = checked_output(result, output_type).content
    assert isinstance(text, str)
    return output_type.model_validate_json(text)


def _check_output_type(output_type: object) -> None:
    is_model = isinstance(output_type, type) and issubclass(output_type, BaseModel)
    if output_type is not None and not is_model:
        raise ValueError(
            f"output_content_type must be a pydantic class, not {output_type!r:.100}. "
            "Make it a subclass of pydantic.BaseModel."
        )
