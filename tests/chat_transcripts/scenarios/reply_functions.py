"""Reply functions and hooks: which are called, in which order, with what."""

import asyncio

from scripted import outcome, scripted


def run(lib):
    yield from triggers(lib)
    yield from order(lib)
    yield from configs(lib)
    yield from hooks(lib)
    yield from asynchronous(lib)


def reply_of(text, final=True):
    def reply(recipient, messages=None, sender=None, config=None):
        seen = f"{recipient.name} {len(messages)} {sender and sender.name} {config}"
        return final, f"{text}: {seen}"

    return reply


HELLO = [{"role": "user", "content": "hello"}]


def triggers(lib):
    sender, other = scripted(lib, "sender"), scripted(lib, "other")
    for trigger in (
        lib.Agent,
        lib.AssistantAgent,
        "sender",
        "other",
        sender,
        other,
        lambda agent: agent.name == "sender",
        lambda agent: False,
        ["other", sender],
        [["other", sender], None],
        [],
        [None],
    ):
        a = scripted(lib, "a", "its own")
        a.register_reply(trigger, reply_of("triggered"))
        yield a.generate_reply(messages=HELLO, sender=sender)
        yield outcome(a.generate_reply, messages=HELLO)
    for trigger in (None, 3):
        yield outcome(scripted(lib, "a").register_reply, trigger, reply_of("never"))
    a.register_reply([3], reply_of("never"))
    yield outcome(a.generate_reply, messages=HELLO)


def order(lib):
    a, sender = scripted(lib, "a", "its own", default_auto_reply="default"), scripted(lib, "s")
    first, second = reply_of("first"), reply_of("second")
    a.register_reply(lib.Agent, first)
    a.register_reply(lib.Agent, second, position=1)
    yield a.generate_reply(messages=HELLO, sender=sender)
    yield a.generate_reply(messages=HELLO, sender=sender, exclude=[first])
    a.replace_reply_func(first, reply_of("replaced"))
    yield a.generate_reply(messages=HELLO, sender=sender)
    a.register_reply(lib.Agent, reply_of("not final", final=False))
    yield a.generate_reply(messages=HELLO, sender=sender)
    a.register_reply(lib.Agent, reply_of("alone"), remove_other_reply_funcs=True)
    yield len(a._reply_func_list), a.generate_reply(messages=HELLO, sender=sender)
    a.register_reply(lib.Agent, reply_of("not final", final=False), remove_other_reply_funcs=True)
    yield a.generate_reply(messages=HELLO, sender=sender)


def configs(lib):
    a, sender = scripted(lib, "a"), scripted(lib, "s")
    counter = {"count": 0}

    def count(recipient, messages=None, sender=None, config=None):
        config["count"] += 1
        return True, str(config)

    a.register_reply(lib.Agent, count, config=counter)
    for _ in range(2):
        yield a.generate_reply(messages=HELLO, sender=sender)
    yield counter
    a.reset()
    yield a.generate_reply(messages=HELLO, sender=sender)
    a = scripted(lib, "a")
    a.register_reply(
        lib.Agent, count, config=counter, reset_config=lambda config: config.update(count=0)
    )
    a.generate_reply(messages=HELLO, sender=sender)
    a.reset()
    yield a.generate_reply(messages=HELLO, sender=sender)


def hooks(lib):
    a, b = scripted(lib, "a", "a1"), scripted(lib, "b", "b1", "b2")
    a.register_hook("process_last_received_message", lambda text: f"{text}, last")

    def add_message(messages):
        return [*messages, {"role": "user", "content": "added"}]

    a.register_hook("process_all_messages_before_reply", add_message)
    a.register_reply(lib.Agent, reply_of("asked"))

    def say_more(sender, message, recipient, silent):
        text = message if isinstance(message, str) else message["content"]
        return f"{text}, before it is sent by {sender.name} to {recipient.name}, {silent}"

    a.register_hook("process_message_before_send", say_more)
    yield b.initiate_chat(a, message="hi", max_turns=1)
    yield a.chat_messages, b.chat_messages
    for content in ("x", "exit", None, ""):
        yield a.process_last_received_message([{"role": "user", "content": content}])
    for call in ({"context": {}}, {"function_call": {"name": "f"}}, {"tool_calls": [{"id": "1"}]}):
        yield a.process_last_received_message([{"role": "user", "content": "x", **call}])
    yield a.process_all_messages_before_reply([{"role": "user", "content": "x"}])
    yield outcome(a.register_hook, "other", add_message)
    yield outcome(a.register_hook, "process_all_messages_before_reply", add_message)
    a.hook_lists["process_last_received_message"][:] = [lambda text: 5]
    yield outcome(a.process_last_received_message, [{"role": "user", "content": "x"}])


def asynchronous(lib):
    a, sender = scripted(lib, "a", "its own"), scripted(lib, "sender", "s1")

    async def later(recipient, messages=None, sender=None, config=None):
        await asyncio.sleep(0)
        return True, "later"

    a.register_reply(lib.Agent, later)
    yield a.generate_reply(messages=HELLO, sender=sender)
    yield asyncio.run(a.a_generate_reply(messages=HELLO, sender=sender))
    yield outcome(sender.initiate_chat, a, message="hi")
    yield asyncio.run(sender.a_initiate_chat(a, message="hi", max_turns=1))
    b = scripted(lib, "b", "its own")
    b.register_reply(lib.Agent, later, ignore_async_in_sync_chat=True)
    yield sender.initiate_chat(b, message="hi", max_turns=1)
