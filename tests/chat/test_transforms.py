"""Changes to the messages that an agent sees, while the stored ones stay."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from cellblock.chat import Cache, ConversableAgent
from cellblock.chat.transforms import (
    MessageHistoryLimiter,
    MessageTokenLimiter,
    MessageTransform,
    TextMessageCompressor,
    TextMessageContentName,
    TransformMessages,
)
from tests.chat.console import console

Messages = list[dict[str, Any]]


def message(content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def words(count: int) -> str:
    """Return a text with `count` tokens."""
    return "word" * count


def contents(transform: MessageTransform, messages: Messages) -> list[Any]:
    """Return the contents that `transform` makes, and check that it leaves `messages`."""
    before = copy.deepcopy(messages)
    changed = transform.apply_transform(messages)
    assert messages == before
    return [each.get("content") for each in changed]


def sizes(transform: MessageTransform, messages: Messages) -> list[int]:
    return [len(content) // 4 for content in contents(transform, messages)]


LONG = [message(words(5)), message(words(3), "assistant"), message(words(4))]


LIMITS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [5, 3, 4]),
    ({"max_tokens_per_message": 2}, [2, 2, 2]),
    ({"max_tokens_per_message": 0}, [0, 0, 0]),
    ({"max_tokens": 100}, [5, 3, 4]),
    ({"max_tokens": 10}, [3, 3, 4]),
    ({"max_tokens": 7}, [3, 4]),
    ({"max_tokens": 6}, [2, 4]),
    ({"max_tokens": 3}, [3]),
    ({"max_tokens": 0}, [0]),
    ({"max_tokens": 5, "max_tokens_per_message": 2}, [1, 2, 2]),
    ({"max_tokens_per_message": 2, "min_tokens": 12}, [2, 2, 2]),
    ({"max_tokens_per_message": 2, "min_tokens": 13}, [5, 3, 4]),
    ({"max_tokens_per_message": 2, "filter_dict": {"role": "user"}}, [5, 2, 4]),
    ({"max_tokens_per_message": 2, "filter_dict": {"role": ["user"]}}, [5, 2, 4]),
    (
        {
            "max_tokens_per_message": 2,
            "filter_dict": {"role": ["user"]},
            "exclude_filter": False,
        },
        [2, 3, 2],
    ),
]


def test_messages_are_cut_and_the_first_left_out() -> None:
    faults = [
        (options, found)
        for options, expected in LIMITS
        if (found := sizes(MessageTokenLimiter(**options), LONG)) != expected
    ]
    assert faults == []


def test_images_and_calls_are_kept_when_texts_are_cut() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    parts: list[Any] = [{"type": "text", "text": words(5)}, image, words(5)]
    cut: list[Any] = [{"type": "text", "text": words(2)}, image, words(2)]
    assert contents(MessageTokenLimiter(2), [message(parts)]) == [cut]
    fitted: list[Any] = [{"type": "text", "text": words(5)}, image, words(2)]
    assert contents(MessageTokenLimiter(max_tokens=7), [message(parts)]) == [fitted]
    called = message(words(9), "assistant", tool_calls=[{"id": "1", "function": {"name": "f"}}])
    [changed] = MessageTokenLimiter(2).apply_transform([called])
    assert changed == {**called, "content": words(2)}


def test_contents_that_are_no_text_are_left() -> None:
    odd = [message(None), message(""), message([]), message(5), {"role": "user"}]
    assert contents(MessageTokenLimiter(1, 1), odd) == [None, "", [], 5, None]
    assert contents(MessageTokenLimiter(1, 1), []) == []


def test_a_result_whose_call_has_no_room_is_left_out() -> None:
    messages = [
        message(words(9), "assistant", tool_calls=[{"id": "1"}]),
        message(words(2), "tool"),
        message(words(2)),
    ]
    assert sizes(MessageTokenLimiter(max_tokens=4), messages) == [2]


def test_a_text_is_cut_between_characters() -> None:
    assert contents(MessageTokenLimiter(1), [message("ab€€")]) == ["ab"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_tokens": -1}, "must be None or greater than or equal to 0"),
        ({"max_tokens_per_message": -1}, "must be None or greater than or equal to 0"),
        ({"min_tokens": -1}, "min_tokens must be None or greater than or equal to 0"),
        ({"min_tokens": 4, "max_tokens": 3}, "min_tokens must not be more than max_tokens"),
    ],
)
def test_wrong_limits_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        MessageTokenLimiter(**options)


def test_a_limit_is_capped_to_what_the_model_accepts() -> None:
    with console() as stream:
        limiter = MessageTokenLimiter(max_tokens=9000, model="gpt-4")
    assert stream.text == (
        "Max token was set to 9000, but gpt-4 can only accept 8192 tokens. Capping it to 8192.\n"
    )
    assert sizes(limiter, [message(words(8500))]) == [8192]
    with console() as stream:
        MessageTokenLimiter(max_tokens=10**9, model="a-model-of-tomorrow")
    assert stream.text == ""


def test_a_name_is_written_once_into_each_text() -> None:
    messages = [
        message("hello", name="bob"),
        message("bob:\nhello", name="bob"),
        message("no name"),
        message(None, name="bob"),
        message([{"type": "text", "text": "a part"}], name="bob"),
    ]
    expected: list[Any] = ["bob:\nhello", "bob:\nhello", "no name", None, messages[4]["content"]]
    named = TextMessageContentName()
    assert contents(named, messages) == expected
    assert named.get_logs(messages, named.apply_transform(messages)) == (
        "1 message(s) changed to incorporate name.",
        True,
    )
    assert named.get_logs(messages, messages)[1] is False
    at_end = TextMessageContentName("end", " -{name}", deduplicate=False)
    assert contents(at_end, messages[:1]) == ["hello -bob"]


@pytest.mark.parametrize("options", [{"position": "middle"}, {"format_string": "no placeholder"}])
def test_a_wrong_position_or_format_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"Use 'start' or 'end'|Put '{name}' in it"):
        TextMessageContentName(**options)


class FirstLetters:
    """Compresses a text to its first letters, and counts how often it was asked."""

    def __init__(self) -> None:
        self.count = 0

    def compress_text(self, text: str, *, letters: int = 2) -> dict[str, Any]:
        self.count += 1
        return {"compressed_prompt": text[:letters], "origin_tokens": 5, "compressed_tokens": 2}


def test_texts_are_compressed_by_a_compressor_of_your_own() -> None:
    compressor = TextMessageCompressor(FirstLetters(), compression_params={"letters": 3})
    messages = [message("hello"), message(None), message([{"type": "text", "text": "again"}])]
    assert contents(compressor, messages) == ["hel", None, [{"type": "text", "text": "aga"}]]
    assert compressor.get_logs([], []) == ("6 tokens saved with text compression.", True)
    patient = TextMessageCompressor(FirstLetters(), min_tokens=100)
    assert contents(patient, messages)[0] == "hello"
    assert patient.get_logs([], []) == ("No tokens saved with text compression.", False)


def test_a_compressed_text_is_read_from_the_cache(tmp_path: Any) -> None:
    letters = FirstLetters()
    with Cache.disk(cache_path_root=str(tmp_path)) as cache:
        for _ in range(2):
            compressor = TextMessageCompressor(letters, cache=cache)
            assert contents(compressor, [message("hello")]) == ["he"]
            assert compressor.get_logs([], [])[1] is True
    assert letters.count == 1


def test_the_compressor_of_autogen_is_not_offered() -> None:
    with pytest.raises(ImportError, match="LLMLingua.*is not offered. Pass an object"):
        TextMessageCompressor()


def listener(seen: list[Messages], *transforms: MessageTransform, verbose: bool = True) -> Any:
    """Return an agent that adds what it sees to `seen`."""
    agent = ConversableAgent("agent", llm_config=False, human_input_mode="NEVER")

    def reply(recipient: Any, messages: Messages, sender: Any, config: Any) -> Any:
        seen.append(messages)
        return True, "ok"

    agent.register_reply([ConversableAgent, None], reply)
    TransformMessages(transforms=transforms, verbose=verbose).add_to_agent(agent)
    return agent


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_sees_the_changed_messages_and_keeps_its_own(is_async: bool) -> None:
    seen: list[Messages] = []
    agent = listener(seen, MessageHistoryLimiter(2), MessageTokenLimiter(2))
    other = ConversableAgent("other", llm_config=False)
    for _ in range(3):
        agent.receive(words(4), other, request_reply=False, silent=True)
    with console() as stream:
        if is_async:
            asyncio.run(agent.a_generate_reply(sender=other))
        else:
            agent.generate_reply(sender=other)
    assert [each["content"] for each in seen[0]] == [words(2), words(2)]
    assert [each["content"] for each in agent.chat_messages[other]] == [words(4)] * 3
    assert stream.text == (
        "Removed 1 messages. Number of messages reduced from 3 to 2.\n"
        "Truncated 4 tokens. Number of tokens reduced from 8 to 4\n"
    )


def test_a_system_message_at_the_start_is_not_changed() -> None:
    seen: list[Messages] = []
    agent = listener(seen, MessageHistoryLimiter(1), MessageTokenLimiter(1))
    with console():
        agent.generate_reply([message(words(3), "system"), message("u1"), message(words(2))])
        agent.generate_reply([message(words(3), "system")])
    assert [[each["content"] for each in messages] for messages in seen] == [
        [words(3), "word"],
        [words(3)],
    ]
