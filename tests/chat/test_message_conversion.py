"""Messages of a chat as messages of `cellblock.models`, and answers back."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock.chat.models.message_conversion import (
    to_completion,
    to_messages,
    to_tool_choice,
    to_tools,
)
from cellblock.models import (
    AssistantMessage,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    Image,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from tests.chat.model_service import tool

PNG = "data:image/png;base64,iVBORw0KGgo="


def call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def answer(content: str | list[FunctionCall], **fields: Any) -> CreateResult:
    return CreateResult(
        finish_reason="stop", content=content, usage=RequestUsage(3, 4), cached=False, **fields
    )


def test_every_role_has_its_message() -> None:
    assert to_messages(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi", "name": "ann"},
            {"role": "assistant", "content": "Hey", "name": "bob"},
            {"role": "user", "content": None},
        ]
    ) == [
        SystemMessage(content="Be brief."),
        UserMessage(content="Hi", source="ann"),
        AssistantMessage(content="Hey", source="bob"),
        UserMessage(content="", source=""),
    ]


def test_results_of_tools_follow_their_calls_with_the_names_of_the_tools() -> None:
    messages = to_messages(
        [
            {
                "role": "assistant",
                "content": "Look:",
                "tool_calls": [call("1", "f"), call("2", "g")],
            },
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
        ]
    )
    calls = [FunctionCall("1", "{}", "f"), FunctionCall("2", "{}", "g")]
    assert messages == [
        AssistantMessage(content=calls, thought="Look:", source=""),
        FunctionExecutionResultMessage(
            content=[
                FunctionExecutionResult(content="one", name="f", call_id="1"),
                FunctionExecutionResult(content="two", name="g", call_id="2"),
            ]
        ),
    ]


def test_a_function_call_in_the_old_style_becomes_a_tool_call_with_its_result() -> None:
    called, result = to_messages(
        [
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "42"},
        ]
    )
    assert isinstance(called, AssistantMessage)
    assert isinstance(result, FunctionExecutionResultMessage)
    assert isinstance(called.content, list)
    assert result.content == [
        FunctionExecutionResult(content="42", name="f", call_id=called.content[0].id)
    ]


def test_a_function_result_without_a_call_is_what_the_function_says() -> None:
    assert to_messages([{"role": "function", "name": "f", "content": "42"}]) == [
        UserMessage(content="42", source="f")
    ]


def test_parts_of_a_message_are_texts_and_images() -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": PNG}},
    ]
    user, system = to_messages(
        [{"role": "user", "content": parts}, {"role": "system", "content": parts}]
    )
    assert user == UserMessage(content=["Look", Image.from_uri(PNG)], source="")
    assert system == SystemMessage(content="Look<image>")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": "boss", "content": "x"}, "role 'boss'"),
        ({"role": "user", "content": [{"type": "smell"}]}, "part of an unknown type"),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}],
            },
            "not a data URI",
        ),
    ],
)
def test_what_cannot_be_converted_is_named(message: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        to_messages([message])


def test_a_tool_choice_is_a_word_or_one_of_the_tools() -> None:
    tools = to_tools([tool("f"), tool("g")])
    assert to_tool_choice(None, tools) == "auto"
    assert to_tool_choice("required", tools) == "required"
    assert to_tool_choice({"type": "function", "function": {"name": "g"}}, tools) is tools[1]
    assert to_tool_choice({"name": "f"}, tools) is tools[0]
    with pytest.raises(ValueError, match="one of the tools"):
        to_tool_choice({"name": "h"}, tools)


def test_an_answer_has_the_form_of_a_completion() -> None:
    completion = to_completion([answer("Hey")], "m")
    assert completion.choices[0].message.content == "Hey"
    assert completion.model == "m"
    assert completion.usage.model_dump() == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
    }


def test_calls_are_tool_calls_or_a_function_call_in_the_old_style() -> None:
    called = answer([FunctionCall("1", "{}", "f")], thought="Look:")
    message = to_completion([called], "m").choices[0].message
    assert message.content == "Look:"
    assert message.tool_calls is not None
    assert message.tool_calls[0].model_dump() == call("1", "f")
    signed = answer([FunctionCall("1", "{}", "f", {"google": {"thought_signature": "s"}})])
    [again] = to_messages([to_completion([signed], "m").choices[0].message.model_dump()])
    assert isinstance(again.content[0], FunctionCall)
    assert again.content[0].extra_content == {"google": {"thought_signature": "s"}}
    old = to_completion([called], "m", old_style=True).choices[0].message
    assert old.tool_calls is None
    assert old.function_call is not None
    assert old.function_call.name == "f"
