"""Spans of agents and teams: one each time that they are asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, Protocol, TypeVar

from ..models.span_messages import text_json
from ..tracing import genai_span
from .messages import AgentMessage, BaseChatMessage

ItemT = TypeVar("ItemT")
LastT = TypeVar("LastT")


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


def trace_creation(agent: _Named) -> None:
    """Record that `agent` was made."""
    attributes = {
        "gen_ai.provider.name": "cellblock",
        "gen_ai.agent.name": agent.name,
        "gen_ai.agent.description": agent.description or None,
    }
    genai_span("create_agent", agent.name, attributes).end()


def trace_agent(
    operation: Literal["invoke_agent", "invoke_workflow"],
    agent: _Named,
    messages: Sequence[BaseChatMessage],
    items: AsyncGenerator[ItemT, None],
    last: type[LastT],
    answer_of: Callable[[LastT], Sequence[AgentMessage]],
) -> AsyncGenerator[ItemT, None]:
    """Return `items`: what `agent` yields in answer to `messages`, which happens in a span.

    An item of the class `last` ends it; `answer_of` returns the messages that it contains.
    """
    attributes = {
        "gen_ai.agent.name": agent.name,
        "gen_ai.agent.description": agent.description or None,
    }
    span = genai_span(operation, agent.name, attributes)
    if not span.records_content:
        return span.stream(items, last)
    span.set("gen_ai.input.messages", text_json("user", _texts(messages)))
    return span.stream(
        items,
        last,
        lambda item: span.set(
            "gen_ai.output.messages", text_json("assistant", _texts(answer_of(item)[-1:]))
        ),
    )


def _texts(messages: Sequence[AgentMessage]) -> list[str]:
    return [message.to_text() for message in messages]
