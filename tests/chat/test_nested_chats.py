"""An agent holds chats with other agents before it replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from tests.chat.scripted import contents, scripted

HELLO = [{"role": "user", "content": "hello"}]


def entry(recipient: ConversableAgent, message: Any = "m", **options: Any) -> dict[str, Any]:
    return {"recipient": recipient, "message": message, "max_turns": 1, "silent": True, **options}


def nested(trigger: Any, *queue: dict[str, Any], **options: Any) -> ConversableAgent:
    a = scripted("a", "reply of its own", silent=True)
    a.register_nested_chats(list(queue), trigger, **options)
    return a


def trio() -> tuple[ConversableAgent, ConversableAgent, ConversableAgent]:
    b, c, d = (scripted(name, *[f"{name}{i}" for i in range(1, 5)], silent=True) for name in "bcd")
    return b, c, d


def test_the_reply_is_the_summary_of_the_last_chat() -> None:
    b, c, d = trio()
    a = nested(b, entry(c), entry(d, "static"))
    result = b.initiate_chat(a, message="hi", max_turns=1)
    assert contents(result.chat_history) == ["hi", "d1"]
    assert contents(a.chat_messages[d])[0] == "static\nContext: \nc1"


def test_messages_of_others_do_not_trigger_the_chats() -> None:
    b, c, _ = trio()
    assert nested(b, entry(c)).generate_reply(messages=HELLO, sender=c) == "reply of its own"


def test_a_function_makes_the_message_from_what_is_to_be_answered() -> None:
    b, c, _ = trio()

    def ask(recipient: Any, messages: Any, sender: Any, config: Any) -> str:
        return f"{recipient.name} {messages[-1]['content']} {sender.name} {config}"

    a = nested(b, entry(c, ask), config="given")
    assert a.generate_reply(messages=HELLO, sender=b) == "c1"
    assert contents(a.chat_messages[c])[0] == "a hello b given"


@pytest.mark.parametrize(
    "content", ["the question", [{"type": "text", "text": "the question"}]], ids=["text", "parts"]
)
def test_the_first_chat_opens_with_the_message_that_is_to_be_answered(content: Any) -> None:
    b, c, d = trio()
    a = nested(b, entry(c, None), entry(d, None))
    assert a.generate_reply(messages=[{"role": "user", "content": content}], sender=b) == "c1"
    assert contents(a.chat_messages[c])[0] == content
    assert not a.chat_messages[d]


def no_message(*_: Any) -> None:
    return None


@pytest.mark.parametrize("empty", ["", no_message])
def test_a_chat_with_an_empty_message_is_left_out(empty: Any) -> None:
    b, c, d = trio()
    a = nested(b, entry(c, empty), entry(d))
    assert a.generate_reply(messages=HELLO, sender=b) == "d1"
    assert not a.chat_messages[c]


def test_there_is_no_reply_if_all_chats_are_left_out() -> None:
    b, c, _ = trio()
    assert nested(b, entry(c, "")).generate_reply(messages=HELLO, sender=b) is None
    assert nested(b).generate_reply(messages=HELLO, sender=b) is None


def test_the_queue_stays_as_it_is() -> None:
    b, c, d = trio()
    queue = [entry(c, carryover="own"), entry(d)]
    before = [dict(each) for each in queue]
    a = nested(b, *queue)
    for _ in range(2):
        a.generate_reply(messages=HELLO, sender=b)
    assert queue == before
    assert contents(a.chat_messages[d])[0] == "m\nContext: \nc2"


def test_an_entry_can_have_another_sender() -> None:
    b, c, d = trio()
    a = nested(b, entry(c, sender=d))
    assert a.generate_reply(messages=HELLO, sender=b) == "c1"
    assert contents(d.chat_messages[c]) == ["m", "c1"]


def test_a_function_of_the_user_holds_the_chats() -> None:
    b, c, _ = trio()

    def own(queue: Any, recipient: Any, messages: Any, sender: Any, config: Any) -> Any:
        return True, f"{len(queue)} {recipient.name} {messages[-1]['content']} {sender.name}"

    a = nested(b, entry(c), reply_func_from_nested_chats=own)
    assert a.generate_reply(messages=HELLO, sender=b) == "1 a hello b"


def test_asynchronous_nested_chats_run_by_their_prerequisites() -> None:
    async def main() -> None:
        b, c, d = trio()

        async def ask(*_: Any) -> str:
            return "awaited"

        a = nested(
            b,
            entry(c, ask, chat_id=1),
            entry(d, chat_id=3, prerequisites=[1, 2]),
            entry(d, "", chat_id=2),
            use_async=True,
        )
        assert await a.a_generate_reply(messages=HELLO, sender=b) == "d1"
        assert contents(a.chat_messages[c])[0] == "awaited"
        assert contents(a.chat_messages[d])[0] == "m\nContext: \nc1"

    asyncio.run(main())


def test_asynchronous_nested_chats_need_an_asynchronous_chat() -> None:
    b, c, _ = trio()
    a = nested(b, entry(c, chat_id=1), use_async=True)
    assert a.generate_reply(messages=HELLO, sender=b) == "reply of its own"
    with pytest.raises(RuntimeError, match="_a_summary_from_nested_chats"):
        b.initiate_chat(a, message="hi")


def test_synchronous_nested_chats_run_in_an_asynchronous_chat_too() -> None:
    b, c, _ = trio()
    a = nested(b, entry(c))
    assert asyncio.run(a.a_generate_reply(messages=HELLO, sender=b)) == "c1"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"trigger": None}, "trigger must be"),
        ({"trigger": 3}, "trigger must be"),
        ({"reply_func_from_nested_chats": "other"}, "must be a callable"),
        ({"use_async": True}, "chat_id is required for async nested chats"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], error: str) -> None:
    b, c, _ = trio()
    settings = {"trigger": b, **options}
    with pytest.raises(ValueError, match=error):
        nested(settings.pop("trigger"), entry(c), **settings)


def test_a_synchronous_function_cannot_hold_asynchronous_chats() -> None:
    b, c, _ = trio()
    chat = entry(c, chat_id=1)
    with pytest.raises(ValueError, match="a callable and a coroutine"):
        nested(b, chat, reply_func_from_nested_chats=no_message, use_async=True)
