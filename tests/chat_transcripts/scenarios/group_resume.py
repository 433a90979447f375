"""Group chats that go on from saved messages, and asynchronous ones."""

import asyncio

from scripted import outcome, scripted, tool_call

SAVED = [
    {"content": "go", "role": "user", "name": "a"},
    {"content": "b0", "role": "user", "name": "b"},
    {"content": "c0 TERMINATE", "role": "user", "name": "c"},
]


def run(lib):
    yield from resumed(lib)
    yield from refused(lib)
    yield from asynchronous(lib)


def group(lib, **options):
    agents = [scripted(lib, name, f"{name}1", f"{name}2") for name in "abc"]
    settings = {"max_round": 4, "speaker_selection_method": "round_robin", **options}
    return agents, lib.GroupChatManager(lib.GroupChat(agents, [], **settings))


def saved():
    return [dict(message) for message in SAVED]


def resumed(lib):
    _, manager = group(lib)
    text = manager.messages_to_string(SAVED)
    yield text, manager.messages_from_string(text)
    calls = {"content": "", "tool_calls": [tool_call("f", "{}")], "role": "assistant", "name": "b"}
    for messages, options in [
        (saved(), {}),
        (text, {"silent": True}),
        (saved(), {"remove_termination_string": "TERMINATE"}),
        (saved(), {"remove_termination_string": lambda text: text.lower()}),
        ([*saved(), {"content": "TERMINATE", "role": "user", "name": "b"}], {}),
        ([{"content": "no name", "role": "user"}, *saved()], {}),
        ([SAVED[0], calls, SAVED[1]], {}),
    ]:
        agents, manager = group(lib, send_introductions="silent" in options)
        speaker, message = manager.resume(messages, **options)
        yield speaker, message, manager.groupchat.messages
        yield [agent.chat_messages for agent in agents]
        yield speaker.initiate_chat(manager, message=message, clear_history=False)
        yield manager.groupchat.messages


def refused(lib):
    _, manager = group(lib)
    stranger = {"content": "x", "role": "user", "name": "stranger"}
    for messages in ([], "[]", None, 5, ["text"], [stranger], [stranger, *SAVED]):
        yield str(outcome(manager.resume, messages))


def asynchronous(lib):
    agents, manager = group(lib, send_introductions=True)
    yield asyncio.run(agents[0].a_initiate_chat(manager, message="asynchronous"))
    yield manager.groupchat.messages, agents[1].chat_messages
    agents, manager = group(lib)
    speaker, message = asyncio.run(manager.a_resume(saved()))
    yield asyncio.run(speaker.a_initiate_chat(manager, message=message, clear_history=False))

    async def a_reply(recipient, messages, sender, config):
        return True, "of a coroutine"

    agents, manager = group(lib)
    agents[1].register_reply(lib.Agent, a_reply)
    yield outcome(agents[0].initiate_chat, manager, message="synchronous")
    yield asyncio.run(agents[0].a_initiate_chat(manager, message="asynchronous"))
