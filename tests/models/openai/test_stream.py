"""Streamed answers, in the shapes of real services."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock.models import CreateResult, FunctionCall
from cellblock.models.openai.stream import CompletionStream


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}],
        "usage": None,
    }


def call_chunk(index: int | None, **call: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return chunk(tool_calls=[{**place, **call}])


def collect(*chunks: object) -> tuple[list[str], CreateResult]:
    stream = CompletionStream()
    pieces = [piece for item in chunks for piece in stream.add(item)]
    return pieces + stream.end(), stream.result()


USAGE: dict[str, Any] = {
    "choices": [],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}


def test_parallel_calls_arrive_in_pieces() -> None:
    pieces, result = collect(
        call_chunk(0, id="c1", type="function", function={"name": "f", "arguments": ""}),
        call_chunk(0, function={"arguments": '{"a"'}),
        call_chunk(1, id="c2", type="function", function={"name": "g", "arguments": ""}),
        call_chunk(0, function={"arguments": ":1}"}),
        call_chunk(1, function={"arguments": "{}"}),
        chunk("tool_calls"),
    )
    assert pieces == []
    assert result.content == [FunctionCall("c1", '{"a":1}', "f"), FunctionCall("c2", "{}", "g")]
    assert result.finish_reason == "function_calls"


def test_whole_calls_need_no_index() -> None:
    _, result = collect(
        call_chunk(None, id="c1", function={"name": "f", "arguments": "{}"}),
        call_chunk(None, id="c2", function={"name": "f", "arguments": "{}"}),
        chunk("stop"),
    )
    assert result.content == [FunctionCall("c1", "{}", "f"), FunctionCall("c2", "{}", "f")]


def test_reasoning_that_ends_without_an_answer_is_closed() -> None:
    pieces, result = collect(chunk(reasoning_content="Hm"), chunk("length"))
    assert pieces == ["<think>Hm", "</think>"]
    assert (result.thought, result.content, result.finish_reason) == ("Hm", "", "length")


def test_tags_in_the_text_are_streamed_and_are_the_thought() -> None:
    pieces, result = collect(
        chunk(content="<thi"), chunk(content="nk>Hm.</think>"), chunk(content="Hi"), chunk("stop")
    )
    assert "".join(pieces) == "<think>Hm.</think>Hi"
    assert (result.thought, result.content) == ("Hm.", "Hi")


def test_a_refusal_is_text() -> None:
    pieces, result = collect(chunk(refusal="I "), chunk(refusal="cannot."), chunk("stop"))
    assert pieces == ["I ", "cannot."]
    assert result.content == "I cannot."


def test_only_the_first_alternative_is_read() -> None:
    other: dict[str, Any] = {
        "choices": [{"index": 1, "delta": {"content": "No"}, "finish_reason": None}]
    }
    pieces, result = collect(chunk(content="Yes"), other, chunk("stop"))
    assert (pieces, result.content) == (["Yes"], "Yes")


def test_log_probabilities_are_collected() -> None:
    first, second = chunk(content="a"), chunk(content="b")
    for item, token in ((first, "a"), (second, "b")):
        item["choices"][0]["logprobs"] = {"content": [{"token": token, "logprob": -1.0}]}
    _, result = collect(first, second, chunk("stop"))
    assert result.logprobs
    assert [item.token for item in result.logprobs] == ["a", "b"]


def test_a_stream_without_an_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="ended without an answer"):
        collect(USAGE)


def test_a_stream_that_ends_in_the_middle_is_an_error() -> None:
    with pytest.raises(ValueError, match="ended before the answer was complete"):
        collect(chunk(content="~~~python\nhalf"))
