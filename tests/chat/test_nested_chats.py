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


def trio() -> list[ConversableAgent]:
    return [scripted(name, *[f"{name}{i}" for i in range(1, 5)], silent=True) for name in "bcd"]


@pytest.mark.parametrize(
    "content", ["the question", [{"type": "text", "text": "the question"}]], ids=["text", "parts"]
)
def test_the_first_chat_opens_with_the_message_that_is_to_be_answered(content: Any) -> None:
    b, c, d = trio()
    a = nested(b, entry(c, None), entry(d, None))
    assert a.generate_reply(messages=[{"role": "user", "content": content}], sender=b) == "c1"
    assert contents(a.chat_messages[c])[0] == content
    assert not a.chat_messages[d]


def test_the_queue_stays_as_it_is() -> None:
    b, c, d = trio()
    queue = [entry(c, carryover="own"), entry(d)]
    before = [dict(each) for each in queue]
    a = nested(b, *queue)
    for _ in range(2):
        a.generate_reply(messages=HELLO, sender=b)
    assert queue == before
    assert contents(a.chat_messages[d])[0] == "m\nContext: \nc2"


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
