"""The estimate of tokens."""

from __future__ import annotations

from cellblock.models import (
    AssistantMessage,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    Image,
    SystemMessage,
    UserMessage,
)
from cellblock.models.token_estimate import estimate_tokens


def test_four_bytes_are_a_token_and_a_message_has_four_more() -> None:
    assert estimate_tokens([]) == 0
    assert estimate_tokens([UserMessage(content="x" * 40, source="user")]) == 14
    assert estimate_tokens([SystemMessage(content="é" * 20)]) == 14


def test_calls_results_pictures_and_tools_count() -> None:
    call = FunctionCall(id="1", name="f" * 20, arguments="x" * 20)
    assert estimate_tokens([AssistantMessage(content=[call], source="bot")]) == 14
    result = FunctionExecutionResult(content="x" * 40, name="f", call_id="1")
    assert estimate_tokens([FunctionExecutionResultMessage(content=[result])]) == 14
    picture = UserMessage(content=["x" * 40, Image.from_bytes(b"GIF89a")], source="user")
    assert estimate_tokens([picture]) == 1014
    assert estimate_tokens([], tools=[{"name": "f"}]) == 4
