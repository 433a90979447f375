"""Nested chats: an agent holds chats before it replies."""

import asyncio

from scripted import outcome, scripted


def run(lib):
    b = scripted(lib, "b", "b1", "b2")
    c, d = (scripted(lib, name, *[f"{name}{i}" for i in range(30)]) for name in "cd")

    def agent(*chats, **options):
        nested = scripted(lib, "a", "a1", "a2")
        nested.register_nested_chats(list(chats), trigger=b, **options)
        return nested

    def ask(recipient, messages, sender, config):
        return f"{recipient.name} asks for {sender.name}: {messages[-1]['content']} {config}"

    first = {"recipient": c, "message": ask, "max_turns": 1}
    second = {"recipient": d, "message": "static", "max_turns": 1}
    a = agent(first, second)
    yield [each["reply_func"] for each in a._reply_func_list]
    yield b.initiate_chat(a, message="hi", max_turns=1)
    yield a.chat_messages
    hello = [{"role": "user", "content": "hello"}]
    yield a.generate_reply(messages=hello, sender=b)
    yield a.generate_reply(messages=hello, sender=c)
    queues = [
        [{**first, "message": None}],
        [first, {**second, "message": None}],
        [{**first, "message": lambda *_: None}],
        [{**first, "message": lambda *_: {"content": "a dict"}}],
        [{**first, "message": ""}],
        [{**first, "sender": d}],
        [{**first, "carryover": "own"}, {**second, "summary_method": None}],
        [first, {**first, "message": "again"}],
        [],
    ]
    for queue in queues:
        yield agent(*queue).generate_reply(messages=hello, sender=b)
    yield from own_functions(lib, agent, first, hello, b)
    yield from side_by_side(agent, first, second, hello, b)


def own_functions(lib, agent, first, hello, b):
    def own(chat_queue, recipient, messages, sender, config):
        return True, f"{len(chat_queue)} {recipient.name} {messages} {sender.name} {config}"

    a = agent(first, reply_func_from_nested_chats=own, config={"z": 1}, position=0)
    yield [each["reply_func"] for each in a._reply_func_list]
    yield a.generate_reply(messages=hello, sender=b)
    for wrong in ("other", 5):
        yield outcome(agent, first, reply_func_from_nested_chats=wrong)
    yield outcome(agent, first, use_async=True)
    first = {**first, "chat_id": 1}
    yield outcome(agent, first, reply_func_from_nested_chats=own, use_async=True)
    yield outcome(scripted(lib, "x").register_nested_chats, [first], trigger=None)
    yield outcome(scripted(lib, "x").register_nested_chats, [first], trigger=3)
    no_recipient = agent({"message": "m"})
    yield outcome(no_recipient.generate_reply, messages=hello, sender=b)


def side_by_side(agent, first, second, hello, b):
    first = {**first, "chat_id": 1}
    second = {**second, "chat_id": 2, "prerequisites": [1]}
    a = agent(first, second, use_async=True)
    yield asyncio.run(a.a_generate_reply(messages=hello, sender=b))
    yield a.generate_reply(messages=hello, sender=b)
    yield outcome(b.initiate_chat, a, message="not here", max_turns=1)
    yield asyncio.run(agent(first).a_generate_reply(messages=hello, sender=b))
