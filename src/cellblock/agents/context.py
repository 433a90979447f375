"""What a model is shown of the messages that an agent receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..models.contexts import ChatCompletionContext, UnboundedChatCompletionContext
from .messages import BaseChatMessage, HandoffMessage


def context_or_default(context: ChatCompletionContext | None) -> ChatCompletionContext:
    """Return `context`, or one that keeps everything. Raise `ValueError` for anything else."""
    if context is None:
        return UnboundedChatCompletionContext()
    if not isinstance(context, ChatCompletionContext):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(
            "model_context must be a context such as BufferedChatCompletionContext(10), "
            f"not {context!r:.100}."
        )
    return context


def saved_context(state: Mapping[str, Any], agent: str) -> Mapping[str, Any]:
    """Return the conversation in a saved `state`. Raise `ValueError` if there is none."""
    if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(
            f"The state of {agent} must be a dict, not {state!r:.100}. "
            "Pass what save_state returned; read JSON text with json.loads first."
        )
    if not isinstance(state.get("llm_context"), Mapping):
        raise ValueError(
            f"The state has no llm_context, so it is not one of {agent}. "
            "Pass what save_state returned."
        )
    return state["llm_context"]


async def add_to_context(
    context: ChatCompletionContext, messages: Sequence[BaseChatMessage]
) -> None:
    """Add `messages` to `context`; what a handoff brings along comes before it."""
    for message in messages:
        if isinstance(message, HandoffMessage):
            for earlier in message.context:
                await context.add_message(earlier)
        await context.add_message(message.to_model_message())
