"""A human selects the speaker of a group chat, or takes part in it."""

import asyncio

from scripted import scripted

ANSWERS = [
    "2", "3", "0", "4", "", "q", "x", "1", "2", "3", "my words", "", "CLEAR HISTORY b 1 go on",
    "clear history", "exit",
]  # fmt: skip


def run(lib):
    yield from selects(lib)
    yield asyncio.run(a_selects(lib))
    yield from takes_part(lib)


def three(lib):
    return [scripted(lib, name, *(f"{name}{i}" for i in range(9))) for name in "abc"]


def selects(lib):
    a, b, c = three(lib)
    chat = lib.GroupChat([a, b, c], [], max_round=6, speaker_selection_method="manual")
    manager = lib.GroupChatManager(chat, llm_config=False)
    yield a.initiate_chat(manager, message="choose")
    yield chat.manual_select_speaker([b, c])


async def a_selects(lib):
    a, b, c = three(lib)
    options = {"speaker_selection_method": "manual", "allow_repeat_speaker": False}
    manager = lib.GroupChatManager(lib.GroupChat([a, b, c], [], max_round=2, **options))
    return await a.a_initiate_chat(manager, message="asynchronous")


def takes_part(lib):
    a, b, _ = three(lib)
    human = lib.UserProxyAgent("human", code_execution_config=False, default_auto_reply="default")
    chat = lib.GroupChat(
        [a, b, human],
        [],
        max_round=20,
        speaker_selection_method="round_robin",
        enable_clear_history=True,
    )
    manager = lib.GroupChatManager(chat, llm_config=False)
    yield a.initiate_chat(manager, message="go")
    yield chat.messages
    for agent in (a, b, human):
        yield agent.chat_messages
