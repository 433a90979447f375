"""What tool calls become in the conversation: model messages, a summary, a handoff."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

from ..models.messages import (
    AssistantMessage,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)
from .agent_tools import ToolOutcome
from .handoff import Handoff
from .messages import HandoffMessage, ToolCallSummaryMessage

SummaryFormatter = Callable[[FunctionCall, FunctionExecutionResult], str]


def exchange(outcomes: Sequence[ToolOutcome], thought: str | None, source: str) -> list[LLMMessage]:
    """Return the tool calls of the model and their results; pictures follow as a message."""
    messages: list[LLMMessage] = [
        AssistantMessage(
            content=[outcome.call for outcome in outcomes], thought=thought, source=source
        ),
        FunctionExecutionResultMessage(content=[outcome.result for outcome in outcomes]),
    ]
    for outcome in outcomes:
        if outcome.images:
            text = f"The pictures of the result of {outcome.call.name}:"
            messages.append(UserMessage(content=[text, *outcome.images], source=source))
    return messages


def find_handoff(
    outcomes: Sequence[ToolOutcome],
    thought: str | None,
    handoffs: Mapping[str, Handoff],
    source: str,
) -> HandoffMessage | None:
    """Return the message that hands over, with the other calls and their results; or None."""
    requests = [outcome for outcome in outcomes if outcome.call.name in handoffs]
    if not requests:
        return None
    targets = [handoffs[outcome.call.name].target for outcome in requests]
    if len(requests) > 1:
        warnings.warn(
            f"Multiple handoffs detected. Only the first is executed: {targets}. "
            "Disable parallel tool calls in the model client to avoid this warning.",
            stacklevel=2,
        )
    others = [outcome for outcome in outcomes if outcome not in requests]
    context: list[LLMMessage] = []
    if others:
        context = exchange(others, thought, source)
    elif thought:
        context = [AssistantMessage(content=thought, source=source)]
    return HandoffMessage(
        content=requests[0].result.content, target=targets[0], source=source, context=context
    )


def summarize(
    outcomes: Sequence[ToolOutcome], formatter: SummaryFormatter, source: str
) -> ToolCallSummaryMessage:
    """Return the results as text, formatted by `formatter`."""
    return ToolCallSummaryMessage(
        content="\n".join(formatter(each.call, each.result) for each in outcomes),
        source=source,
        tool_calls=[outcome.call for outcome in outcomes],
        results=[outcome.result for outcome in outcomes],
    )


def summary_formatter(template: str) -> SummaryFormatter:
    """Return what fills the call and its result into `template`."""

    def format_result(call: FunctionCall, result: FunctionExecutionResult) -> str:
        return template.format(
            tool_name=call.name,
            arguments=call.arguments,
            result=result.content,
            is_error=result.is_error,
        )

    return format_result
