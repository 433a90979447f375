"""What is sent to Anthropic's interface, and what is read from it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from cellblock.models import (
    AssistantMessage,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    Image,
    RequestUsage,
    SystemMessage,
    ToolSchema,
    UserMessage,
)
from cellblock.models.anthropic.answers import ClaudeMessage
from cellblock.models.anthropic.convert import (
    to_messages,
    to_result,
    to_system,
    to_tool_choice,
    to_tools,
)
from cellblock.models.model_request import ModelRequest

PICTURE = Image.from_bytes(b"GIF89a...")
WEATHER = ToolSchema(name="weather", description="Get the weather.")


class Plan(BaseModel):
    """A plan."""

    text: str


def test_a_conversation_becomes_alternating_messages() -> None:
    conversation = [
        SystemMessage(content="Be kind."),
        UserMessage(content="Hi", source="user"),
        UserMessage(content=["Look:", PICTURE], source="ann"),
        SystemMessage(content="Be brief."),
        AssistantMessage(
            content=[FunctionCall(id="c1", name="weather", arguments='{"city":"Paris"}')],
            thought="I look it up.",
            source="bot",
        ),
        FunctionExecutionResultMessage(
            content=[FunctionExecutionResult(content="no", name="f", call_id="c1", is_error=True)]
        ),
        UserMessage(content="", source="user"),
        AssistantMessage(content="Sun. \n", source="bot"),
    ]
    assert to_system(conversation) == "Be kind.\nBe brief."
    source = {"type": "base64", "media_type": "image/gif", "data": PICTURE.to_base64()}
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}
    assert to_messages(conversation) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "text", "text": "Look:"},
                {"type": "image", "source": source},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "I look it up."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "(empty)"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Sun."}]},
    ]


@pytest.mark.parametrize("arguments", ["[1]", "{gar", '"x"'])
def test_arguments_that_are_no_object_can_be_sent(arguments: str) -> None:
    call = FunctionCall(id="c1", name="f", arguments=arguments)
    [message] = to_messages([AssistantMessage(content=[call], source="bot")])
    assert message["content"][0]["input"] == {"arguments": arguments}


def test_tools_and_the_choice_have_the_services_form() -> None:
    assert to_tools([WEATHER]) == [
        {
            "name": "weather",
            "description": "Get the weather.",
            "input_schema": {"type": "object", "properties": {}},
        }
    ]
    choices: list[tuple[Any, dict[str, str]]] = [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        (WEATHER, {"type": "tool", "name": "weather"}),
    ]
    for choice, sent in choices:
        request = ModelRequest(messages=[], tools=[WEATHER], tool_choice=choice)
        assert to_tool_choice(request) == sent


def message(*content: dict[str, Any], stop_reason: str = "end_turn") -> ClaudeMessage:
    usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 3}
    return ClaudeMessage.model_validate(
        {"content": content, "stop_reason": stop_reason, "usage": usage}
    )


TEXT = {"type": "text", "text": "Hi"}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
CALL = {"type": "tool_use", "id": "c1", "name": "Plan", "input": {"text": "go"}}


def test_thinking_and_text_beside_calls_are_the_thought() -> None:
    request = ModelRequest(messages=[], tools=[WEATHER])
    result = to_result(message(THINKING, TEXT), request)
    assert (result.thought, result.content) == ("Hm.", "Hi")
    assert result.usage == RequestUsage(8, 2)
    result = to_result(message(THINKING, TEXT, CALL, stop_reason="tool_use"), request)
    assert result.thought == "Hm.\n\nHi"
    assert result.content == [FunctionCall("c1", '{"text": "go"}', "Plan")]
    assert result.finish_reason == "function_calls"


def test_the_arguments_of_the_json_tool_are_the_answer() -> None:
    request = ModelRequest(messages=[], json_output=Plan)
    result = to_result(message(CALL, stop_reason="tool_use"), request)
    assert (result.content, result.finish_reason) == ('{"text": "go"}', "stop")


def test_stop_reasons_have_autogens_names() -> None:
    names = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "refusal": "content_filter",
        "pause_turn": "unknown",
    }
    request = ModelRequest(messages=[])
    results = {name: to_result(message(TEXT, stop_reason=name), request) for name in names}
    assert {name: result.finish_reason for name, result in results.items()} == names
