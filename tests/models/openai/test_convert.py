"""What is sent to the chat completions protocol, and what is read from it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from cellblock.models import (
    AssistantMessage,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    Image,
    LLMMessage,
    ModelInfo,
    SystemMessage,
    ToolSchema,
    UserMessage,
)
from cellblock.models.model_request import ModelRequest
from cellblock.models.openai.answers import Completion
from cellblock.models.openai.convert import (
    to_messages,
    to_response_format,
    to_result,
    to_tool_choice,
    to_tools,
    with_instruction,
)

INFO = ModelInfo(
    vision=True, function_calling=True, json_output=True, family="x", structured_output=True
)
JSON_MODE = ModelInfo(
    vision=True, function_calling=True, json_output=True, family="x", structured_output=False
)
PICTURE = Image.from_bytes(b"GIF89a...")
CONVERSATION: list[LLMMessage] = [
    SystemMessage(content="Be kind."),
    UserMessage(content="Hi", source="user"),
    AssistantMessage(
        content=[FunctionCall(id="c1", name="weather", arguments='{"city":"Paris"}')],
        thought="I look it up.",
        source="bot",
    ),
    FunctionExecutionResultMessage(
        content=[
            FunctionExecutionResult(content="sun", name="weather", call_id="c1", is_error=False),
            FunctionExecutionResult(content="no", name="weather", call_id="c2", is_error=True),
        ]
    ),
    AssistantMessage(content="Sun.", thought="not sent", source="bot"),
    UserMessage(content=["Look:", PICTURE], source="Ann Lee"),
]


def test_speakers_are_named_in_the_text_or_not_at_all() -> None:
    messages = [UserMessage(content="Hi", source="ann"), UserMessage(content=[PICTURE], source="b")]
    first, second = to_messages(messages, INFO, add_name_prefixes=True, include_name=False)
    assert first == {"role": "user", "content": "ann said:\nHi"}
    assert second["content"][0] == {"type": "text", "text": "b said:\n"}


def test_system_messages_are_joined_for_a_model_that_takes_one() -> None:
    info: ModelInfo = {**INFO, "multiple_system_messages": False}
    system = [SystemMessage(content="a"), SystemMessage(content="b")]
    user = UserMessage(content="Hi", source="user")
    assert to_messages([*system, user], info)[0] == {"role": "system", "content": "a\nb"}
    with pytest.raises(ValueError, match="Not continuous system messages"):
        to_messages([system[0], user, system[1]], info)


class Step(BaseModel):
    """A part of a plan."""

    text: str = "wait"
    steps: list[Step] = []


class Plan(BaseModel):
    """A plan."""

    first: Step = Field(description="What to do first.")


def test_a_class_becomes_a_strict_schema() -> None:
    request = ModelRequest(messages=[], json_output=Plan)
    [field] = to_response_format(request, INFO, schema_in_json_mode=False).values()
    assert field["type"] == "json_schema"
    assert field["json_schema"]["name"] == "Plan"
    assert field["json_schema"]["strict"] is True
    schema = field["json_schema"]["schema"]
    assert (schema["required"], schema["additionalProperties"]) == (["first"], False)
    # Nothing stands next to a reference, and nothing has a default.
    described = {"anyOf": [{"$ref": "#/$defs/Step"}], "description": "What to do first."}
    assert schema["properties"]["first"] == described
    step = schema["$defs"]["Step"]
    assert step["required"] == ["text", "steps"]
    assert step["properties"]["text"] == {"title": "Text", "type": "string"}


def test_a_model_with_json_mode_alone_is_told_the_schema() -> None:
    request = ModelRequest(messages=[], json_output=Plan)
    plain = to_response_format(request, JSON_MODE, schema_in_json_mode=False)
    assert plain == {"response_format": {"type": "json_object"}}
    dialect = to_response_format(request, JSON_MODE, schema_in_json_mode=True)
    assert dialect["response_format"]["schema"] == Plan.model_json_schema()
    told = with_instruction(CONVERSATION, Plan)
    assert str(told[0].content).startswith("Be kind.\n\nAnswer with one JSON object of this schema")
    assert told[1:] == CONVERSATION[1:]
    assert with_instruction(CONVERSATION[1:], Plan)[0].type == "SystemMessage"


def completion(finish_reason: str | None = "stop", **message: Any) -> Completion:
    return Completion.model_validate(
        {"choices": [{"finish_reason": finish_reason, "message": message}]}
    )


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("answer", "content", "thought"),
    [
        (completion(content="Hi"), "Hi", None),
        (completion(content="<think>\nHm.\n</think>\n\nHi"), "Hi", "Hm."),
        (completion(content="Write <think>x</think>"), "Write <think>x</think>", None),
        (completion("length", content="<think>Hm"), "", "Hm"),
        (completion(content="<think> opens it."), "<think> opens it.", None),
        (completion(content="Hi", reasoning_content="Hm."), "Hi", "Hm."),
        (completion(content="Hi", reasoning="Hm."), "Hi", "Hm."),
        (completion(content=None, refusal="I cannot."), "I cannot.", None),
        (
            completion(content="I call.", tool_calls=[CALL]),
            [FunctionCall("c1", "{}", "f")],
            "I call.",
        ),
    ],
)
def test_reasoning_is_the_thought(
    answer: Completion, content: str | list[FunctionCall], thought: str | None
) -> None:
    result = to_result(answer)
    assert (result.content, result.thought) == (content, thought)


FINISH_REASONS: list[tuple[str | None, list[Any], str]] = [
    ("stop", [], "stop"),
    ("length", [], "length"),
    ("content_filter", [], "content_filter"),
    ("tool_calls", [CALL], "function_calls"),
    ("stop", [CALL], "function_calls"),
    ("length", [CALL], "length"),
    ("eos", [], "unknown"),
    (None, [], "unknown"),
]


def test_finish_reasons_have_autogens_names() -> None:
    faults = [
        (reason, calls, result.finish_reason)
        for reason, calls, ours in FINISH_REASONS
        if (result := to_result(completion(reason, content="", tool_calls=calls))).finish_reason
        != ours
    ]
    assert faults == []


def test_a_call_can_be_sent_back_whatever_its_name_and_id() -> None:
    call = {"id": "", "function": {"name": "functions.f", "arguments": None}}
    [read] = to_result(completion(tool_calls=[call])).content
    assert isinstance(read, FunctionCall)
    assert read.id.startswith("call_")
    assert (read.name, read.arguments) == ("functions_f", "")


def test_log_probabilities_are_kept() -> None:
    candidate = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105]}
    token = {**candidate, "top_logprobs": [candidate]}
    choice = {"message": {"content": "Hi"}, "logprobs": {"content": [token], "refusal": None}}
    result = to_result(Completion.model_validate({"choices": [choice]}))
    assert result.logprobs
    assert (result.logprobs[0].token, result.logprobs[0].logprob) == ("Hi", -0.1)
    assert result.logprobs[0].top_logprobs
    assert result.logprobs[0].top_logprobs[0].bytes == [72, 105]


def test_tools_have_the_services_form() -> None:
    weather = ToolSchema(name="weather", description="Get the weather.", strict=True)
    function: dict[str, Any] = {
        "name": "weather",
        "description": "Get the weather.",
        "parameters": {},
    }
    assert to_tools([weather, {"name": "now"}]) == [
        {"type": "function", "function": {**function, "strict": True}},
        {
            "type": "function",
            "function": {**function, "name": "now", "description": "", "strict": False},
        },
    ]
    assert to_tool_choice("required") == "required"
    assert to_tool_choice(weather) == {"type": "function", "function": {"name": "weather"}}
