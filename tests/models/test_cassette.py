"""Cassettes: recorded once with a model, replayed without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cellblock import CancellationToken, load_component
from cellblock.errors import CassetteMismatch
from cellblock.models import (
    AssistantMessage,
    CassetteChatCompletionClient,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    Image,
    LLMMessage,
    ModelInfo,
    OpenAIChatCompletionClient,
    ReplayChatCompletionClient,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from cellblock.tools import FunctionTool

PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
INFO = ModelInfo(
    vision=True, function_calling=True, json_output=True, family="x", structured_output=True
)
CALL = FunctionCall(id="1", name="add", arguments='{\n "a": 1\n}')
CALLS = CreateResult(
    finish_reason="function_calls",
    content=[CALL],
    usage=RequestUsage(3, 4),
    cached=False,
    thought="hm\nhm",
)
QUESTION: list[LLMMessage] = [
    SystemMessage(content="Be brief."),
    UserMessage(content=["What is\nthis?", PIXEL], source="user"),
]
TALK: list[LLMMessage] = [
    *QUESTION,
    AssistantMessage(content=[CALL], source="assistant"),
    FunctionExecutionResultMessage(
        content=[FunctionExecutionResult(content="2", name="add", call_id="1", is_error=False)]
    ),
]


class Answer(BaseModel):
    value: int


def add(a: int) -> int:
    return a


def user(text: str) -> list[UserMessage]:
    return [UserMessage(content=text, source="user")]


def model(*answers: str | CreateResult) -> ReplayChatCompletionClient:
    client = ReplayChatCompletionClient(answers, INFO)
    client.set_cached_bool_value(False)
    return client


async def conversation(client: CassetteChatCompletionClient) -> list[str | CreateResult]:
    """Ask with tools, with an image, with a schema, and streamed."""
    tool = FunctionTool(add, "Add.")
    items: list[str | CreateResult] = [await client.create(QUESTION, tools=[tool])]
    items += [item async for item in client.create_stream(TALK, tools=[tool], tool_choice=tool)]
    items.append(await client.create(user("Now JSON."), json_output=Answer))
    return items


def record(path: Path, *texts: str, answers: Sequence[str] = ()) -> None:
    """Record a turn for each text."""

    async def work() -> None:
        client = CassetteChatCompletionClient(path, model(*(answers or texts)))
        for text in texts:
            await client.create(user(text))

    asyncio.run(work())


def run(work: Coroutine[Any, Any, Any]) -> None:
    asyncio.run(work)


def test_a_recorded_conversation_is_replayed_without_the_model(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "talk.json"

    async def work() -> None:
        real = CassetteChatCompletionClient(path, model(CALLS, "two\nlines here", '{"value": 1}'))
        recorded = await conversation(real)
        replaying = CassetteChatCompletionClient(path)
        assert replaying.turns_left == 3
        replayed = await conversation(replaying)
        assert replaying.turns_left == 0
        cached = [
            item if isinstance(item, str) else item.model_copy(update={"cached": True})
            for item in recorded
        ]
        assert replayed == cached
        assert replaying.model_info == INFO
        assert replaying.total_usage() == real.total_usage()
        assert replaying.actual_usage() == RequestUsage(0, 0)

    run(work())


def test_the_file_is_readable_and_ends_lines_where_the_text_does(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    run(conversation(CassetteChatCompletionClient(path, model(CALLS, "é\nb", '{"value": 1}'))))
    text = path.read_text(encoding="utf-8")
    assert PIXEL.to_base64() not in text
    turn = json.loads(text)["turns"][1]
    assert turn["request"]["messages"][1]["content"][0] == {"|": ["What is", "this?"]}
    assert turn["request"]["messages"][1]["content"][1]["image"].startswith("69 bytes, sha256")
    assert turn["request"]["tool_choice"] == "add"
    assert turn["answer"]["result"]["content"] == {"|": ["é", "b"]}
    assert "é" in text


def test_a_request_that_differs_is_shown_as_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    record(path, "first\nsecond\nthird")
    client = CassetteChatCompletionClient(path)
    with pytest.raises(CassetteMismatch, match=r"talk\.json, turn 1") as caught:
        run(client.create(user("first\nother\nthird")))
    lines = str(caught.value).splitlines()
    assert [line.split() for line in lines if line.startswith(("- ", "+ "))] == [
        ["-", '"second",'],
        ["+", '"other",'],
    ]
    assert client.turns_left == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"json_output": Answer},
        {"tools": [FunctionTool(add, "Add.")]},
        {"tool_choice": "required"},
        {"extra_create_args": {"seed": 1}},
    ],
)
def test_the_other_arguments_are_compared_as_well(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    record(tmp_path / "talk.json", "a")
    client = CassetteChatCompletionClient(tmp_path / "talk.json")
    with pytest.raises(CassetteMismatch):
        run(client.create(user("a"), **arguments))


def test_another_image_is_another_request(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    run(CassetteChatCompletionClient(path, model("a")).create(QUESTION))
    run(CassetteChatCompletionClient(path).create(QUESTION))
    other = Image.from_bytes(PIXEL.data + b"x")
    changed = [QUESTION[0], UserMessage(content=["What is\nthis?", other], source="user")]
    with pytest.raises(CassetteMismatch, match="70 bytes"):
        run(CassetteChatCompletionClient(path).create(changed))


def test_what_differs_from_machine_to_machine_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    rules = [(r"/tmp/\w+", "/tmp/FOLDER")]
    real = CassetteChatCompletionClient(path, model("ok"), normalize=rules)
    run(real.create(user("see /tmp/abc/x.py")))
    assert "/tmp/FOLDER/x.py" in path.read_text()
    assert "abc" not in path.read_text()
    replaying = CassetteChatCompletionClient(path, normalize=rules)
    run(replaying.create(user("see /tmp/other/x.py")))
    with pytest.raises(CassetteMismatch):
        run(CassetteChatCompletionClient(path).create(user("see /tmp/other/x.py")))


def test_rules_also_apply_to_what_was_recorded_without_them(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    record(path, "at 12:30")
    client = CassetteChatCompletionClient(path, normalize=[(r"\d\d:\d\d", "TIME")])
    run(client.create(user("at 17:05")))


def test_an_invalid_rule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'\(' in normalize= is not a regular expression"):
        CassetteChatCompletionClient(tmp_path / "a", model(), normalize=[("(", "")])


def test_a_request_after_the_last_turn_fails_without_a_client(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    record(path, "a")
    client = CassetteChatCompletionClient(path)
    run(client.create(user("a")))
    with pytest.raises(
        CassetteMismatch, match=r"All 1 turns .* were replayed(?s:.*)one more thing"
    ):
        run(client.create(user("one more thing")))


def test_with_a_client_recorded_turns_come_first_and_more_are_added(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    record(path, "a", answers=["recorded"])

    async def work() -> None:
        client = CassetteChatCompletionClient(path, model("new"))
        assert (await client.create(user("a"))).content == "recorded"
        assert (await client.create(user("b"))).content == "new"
        assert CassetteChatCompletionClient(path).turns_left == 2

    run(work())


def test_an_answer_that_was_not_streamed_can_be_streamed(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    record(path, "a", answers=["b c"])

    async def work() -> list[str | CreateResult]:
        client = CassetteChatCompletionClient(path)
        return [item async for item in client.create_stream(user("a"))]

    text, result = asyncio.run(work())
    assert text == "b c"
    assert isinstance(result, CreateResult)


def test_secrets_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    key = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    arguments = {
        "max_tokens": 7,
        "extra_headers": {"Authorization": "Bearer very-secret-text", "X-Api-Key": "hidden"},
        "data_sources": [{"parameters": {"key": "hidden too"}}],
    }
    client = CassetteChatCompletionClient(path, model(f"the key is {key}"))
    run(client.create(user(f"use {key}"), extra_create_args=arguments))
    text = path.read_text()
    for secret in (key, "very-secret", "hidden"):
        assert secret not in text
    assert '"max_tokens": 7' in text
    replaying = CassetteChatCompletionClient(path)
    run(replaying.create(user(f"use {key}"), extra_create_args=arguments))


def test_a_turn_that_did_not_end_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"

    async def work() -> None:
        client = CassetteChatCompletionClient(path, model("one two", "three"))
        stream = client.create_stream(user("a"))
        await anext(stream)
        await stream.aclose()
        assert not path.exists()
        await client.create(user("b"))
        with pytest.raises(ValueError, match="No more mock responses"):
            await client.create(user("c"))
        assert CassetteChatCompletionClient(path).turns_left == 1

    run(work())


def test_a_cancelled_token_ends_a_replay_and_uses_no_turn(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    record(path, "a")
    token = CancellationToken()
    token.cancel()
    client = CassetteChatCompletionClient(path)
    with pytest.raises(asyncio.CancelledError):
        run(client.create(user("a"), cancellation_token=token))
    assert client.turns_left == 1


def test_a_missing_file_needs_a_client(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.json does not exist. Pass client= to record it"):
        CassetteChatCompletionClient(tmp_path / "no.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"turns": [{"request": 1}]}', "\xff"])
def test_a_damaged_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="is damaged .* Delete it and record it again"):
        CassetteChatCompletionClient(path, model())


def test_a_cassette_is_saved_and_loaded(tmp_path: Path) -> None:
    client = CassetteChatCompletionClient(tmp_path / "a", model("b"), normalize=[("x", "y")])
    loaded = load_component(client.dump_component().to_json())
    assert isinstance(loaded, CassetteChatCompletionClient)
    assert loaded.dump_component() == client.dump_component()


@pytest.mark.slow  # the local model is built once, which takes minutes
def test_a_real_model_is_recorded_and_replayed(tmp_path: Path, local_model_url: str) -> None:
    path = tmp_path / "talk.json"
    key = "not-a-real-key-but-secret"
    info = ModelInfo(
        vision=False, function_calling=False, json_output=False, family="x", structured_output=False
    )

    async def work() -> None:
        real = OpenAIChatCompletionClient(
            model="smollm2", base_url=local_model_url, api_key=key, model_info=info, max_tokens=8
        )
        messages = user("Say hello.")
        recording = CassetteChatCompletionClient(path, real)
        recorded = [item async for item in recording.create_stream(messages)]
        await recording.close()
        replaying = CassetteChatCompletionClient(path)
        replayed = [item async for item in replaying.create_stream(messages)]
        assert len(recorded) > 1
        assert replayed[:-1] == recorded[:-1]
        assert key not in path.read_text()

    run(work())


def test_a_folder_is_no_cassette(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder. Pass the path of a file"):
        CassetteChatCompletionClient(tmp_path, ReplayChatCompletionClient(["one"]))


def test_a_dict_is_no_message(tmp_path: Path) -> None:
    cassette: Any = CassetteChatCompletionClient(
        tmp_path / "a.json", ReplayChatCompletionClient(["one"])
    )
    with pytest.raises(ValueError, match=r"messages\[0\] is a dict"):
        run(cassette.create([{"role": "user", "content": "hi"}]))
