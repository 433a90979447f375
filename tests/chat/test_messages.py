"""What agents store and print of the messages they send and receive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import Agent, ConversableAgent
from tests.chat.console import console


def agent(name: str, **options: Any) -> ConversableAgent:
    """Return an agent that asks nobody."""
    return ConversableAgent(name, llm_config=False, human_input_mode="NEVER", **options)


CALL = {"id": "i1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
DASHES = "\n" + "-" * 80 + "\n"


REFUSED: list[dict[str, Any]] = [{"foo": 1}, {"content": None}, {"tool_responses": [{}]}]


def say_k(context: dict[str, Any]) -> str:
    return f"k is {context['k']}"


def sent(message: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return how sender and recipient store `message`, and what is printed."""
    a, b = agent("a"), agent("b")
    with console() as stream:
        a.send(message, b, request_reply=False)
    return a.chat_messages[b][-1], b.chat_messages[a][-1], stream.text


@pytest.mark.parametrize(
    ("message", "stored", "received_role"),
    [
        ("hi", {"content": "hi", "role": "assistant", "name": "a"}, "user"),
        ({"content": "x", "name": "z", "role": "system", "extra": 3},
         {"content": "x", "name": "z", "role": "assistant"}, "user"),
        ({"content": "r", "role": "tool", "tool_call_id": "i1"},
         {"content": "r", "tool_call_id": "i1", "role": "tool", "name": "a"}, "tool"),
        ({"content": "o", "override_role": "system"},
         {"content": "o", "role": "system", "name": "a"}, "system"),
        ({"tool_calls": [CALL]},
         {"tool_calls": [CALL], "content": None, "role": "assistant"}, "assistant"),
        ({"content": "c", "role": "tool", "override_role": "user", "function_call": {"name": "f"}},
         {"content": "c", "function_call": {"name": "f"}, "role": "assistant"}, "assistant"),
        ({"content": "x", "tool_calls": []},
         {"content": "x", "tool_calls": [], "role": "assistant", "name": "a"}, "user"),
        ({"content": "x", "context": {"k": 1}},
         {"content": "x", "context": {"k": 1}, "role": "assistant", "name": "a"}, "user"),
    ],
)  # fmt: skip
def test_both_agents_store_a_message_with_its_role_and_speaker(
    message: Any, stored: dict[str, Any], received_role: str
) -> None:
    at_sender, at_recipient, _ = sent(message)
    assert at_sender == stored
    assert at_recipient == {**stored, "role": received_role}


@pytest.mark.parametrize("message", REFUSED)
def test_a_message_without_content_and_call_is_refused(message: Any) -> None:
    a, b = agent("a"), agent("b")
    with pytest.raises(ValueError, match="^Message can't be converted into a valid ChatComp"):
        a.send(message, b)
    with pytest.raises(ValueError, match="^Received message can't be converted"):
        a.receive(message, b)
    assert not a.chat_messages
    assert not b.chat_messages


@pytest.mark.parametrize("message", [None, 3])
def test_what_is_no_message_is_refused_by_type(message: Any) -> None:
    with pytest.raises(TypeError, match="A message must be a text or a dict"):
        agent("a").send(message, agent("b"))


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("hi", "hi\n"),
        ({"content": [{"type": "text", "text": "see "},
                      {"type": "image_url", "image_url": {"url": "x"}}]}, "see <image>\n"),
        ({"content": "", "tool_calls": [CALL]},
         '\n***** Suggested tool call (i1): f *****\nArguments: \n{"a":1}\n' + "*" * 39 + "\n"),
        ({"content": None, "function_call": {"name": "f"}},
         "***** Suggested function call: f *****\nArguments: \n(No arguments found)\n"
         + "*" * 38 + "\n"),
        ({"content": "r", "role": "tool", "tool_call_id": "i1"},
         "***** Response from calling tool (i1) *****\nr\n" + "*" * 43 + "\n"),
        ({"content": "r", "role": "function", "name": "fn"},
         "***** Response from calling function (fn) *****\nr\n" + "*" * 47 + "\n"),
        ({"content": say_k, "context": {"k": 1}}, "k is 1\n"),
    ],
)  # fmt: skip
def test_a_message_is_printed_with_its_calls_and_results(message: Any, printed: str) -> None:
    assert sent(message)[2] == "a (to b):\n\n" + printed + DASHES


def test_each_tool_response_of_a_message_is_printed_by_itself() -> None:
    responses = [{"tool_call_id": f"i{i}", "role": "tool", "content": "c"} for i in (1, 2)]
    text = sent({"content": "", "role": "tool", "tool_responses": responses})[2]
    assert text.count("a (to b):") == 3
    assert text.count("***** Response from calling tool") == 2


def test_a_template_is_filled_for_the_print_if_the_recipient_allows_it() -> None:
    a, b = agent("a"), agent("b")
    b.llm_config = {"allow_format_str_template": True}
    with console() as stream:
        a.send({"content": "hello {n}", "context": {"n": "bob"}}, b, request_reply=False)
    assert "\nhello bob\n" in stream.text
    assert b.chat_messages[a][0]["content"] == "hello {n}"


@pytest.mark.parametrize(
    ("own", "of_call", "is_printed"),
    [(None, False, True), (None, True, False), (True, False, False), (False, True, True)],
)
def test_the_silence_of_an_agent_comes_before_that_of_a_call(
    own: bool | None, of_call: bool, is_printed: bool
) -> None:
    a, b = agent("a", silent=own), agent("b")
    with console() as stream:
        a.send("x", b, request_reply=False, silent=of_call)
    assert bool(stream.text) is is_printed
    assert b.chat_messages[a]


def test_an_agent_replies_if_asked_to_or_within_a_chat() -> None:
    a, b = agent("a"), agent("b", default_auto_reply="yes")
    with console():
        a.send("1", b)
        assert len(b.chat_messages[a]) == 1
        a.send("2", b, request_reply=True)
        assert [each["content"] for each in a.chat_messages[b]] == ["1", "2", "yes"]
        b.reply_at_receive[a] = True
        asyncio.run(a.a_send("3", b))
        b.stop_reply_at_receive(a)
        a.send("4", b)
    assert [each["content"] for each in b.chat_messages[a]] == ["1", "2", "yes", "3", "yes", "4"]


def test_a_long_conversation_stays_below_the_recursion_limit() -> None:
    a, b = agent("a", default_auto_reply="a"), agent("b", default_auto_reply="b")
    a.initiate_chat(b, message="start", silent=True)
    assert len(a.chat_messages[b]) == 201
    a.reset()
    b.reset()
    asyncio.run(a.a_initiate_chat(b, message="start", silent=True))
    assert len(a.chat_messages[b]) == 201


def test_the_last_message_is_found_by_agent() -> None:
    a, b, c = agent("a"), agent("b"), agent("c")
    assert a.last_message() is None
    with console():
        a.send("1", b)
        assert a.last_message() == a.last_message(b) == {
            "content": "1", "role": "assistant", "name": "a"
        }  # fmt: skip
        with pytest.raises(KeyError, match="agent 'c' is not present in any conversation"):
            a.last_message(c)
        a.send("2", c)
    with pytest.raises(ValueError, match="^More than one conversation is found"):
        a.last_message()
    a.clear_history(b)
    assert a.last_message(b) is None


def test_another_class_can_take_part_in_a_chat() -> None:
    received: list[Any] = []

    class Other:
        name = "other"
        description = "not a ConversableAgent"

        def send(self, *arguments: Any) -> None: ...
        async def a_send(self, *arguments: Any) -> None: ...
        def receive(self, message: Any, sender: Any, *rest: Any) -> None:
            received.append((message, sender.name))

        async def a_receive(self, *arguments: Any) -> None: ...
        def generate_reply(self, *arguments: Any) -> None: ...
        async def a_generate_reply(self, *arguments: Any) -> None: ...

    other: Any = Other()
    assert isinstance(other, Agent)
    with console() as stream:
        agent("a").send("hi", other)
        agent("a").receive("hello", other, request_reply=False)
    assert received == [("hi", "a")]
    assert "other (to a):" in stream.text
