"""Agents with a model: what it is asked, what it costs, and its summaries."""

import asyncio

from scripted import model_config, outcome, scripted, with_model


def run(lib):
    yield from answers(lib)
    yield from reflections(lib)
    yield from nested(lib)


def assistant(lib, name, *replies, **options):
    settings = {"human_input_mode": "NEVER", "llm_config": model_config(*replies), **options}
    return with_model(lib.ConversableAgent(name, **settings))


def answers(lib):
    a = assistant(lib, "a", "a1", "a2", system_message="Be brief.")
    b = assistant(lib, "b", "b1", "b2", "TERMINATE", description="It says b.")
    yield a.initiate_chat(b, message="hi")
    yield a.chat_messages
    yield b.chat_messages
    yield b.get_actual_usage(), b.get_total_usage()
    yield lib.gather_usage_summary([a, b])
    b.print_usage_summary()
    yield a.description, b.description, a.system_message
    a.update_system_message("Be long.")
    yield a.system_message
    yield assistant(lib, "c", "direct").generate_reply([{"role": "user", "content": "say"}])
    c = assistant(lib, "c", "later")
    yield asyncio.run(a.a_initiate_chat(c, message="asynchronous", max_turns=1))


def reflections(lib):
    a, b = scripted(lib, "a"), assistant(lib, "b", "b1", "the summary", "b2", "the other", "b3")
    reflect = {"summary_method": "reflection_with_llm", "max_turns": 1}
    yield a.initiate_chat(b, message="1", **reflect)
    given = {"summary_prompt": "In a word?", "summary_role": "user"}
    yield a.initiate_chat(b, message="2", summary_args=given, **reflect)
    yield given
    yield outcome(a.initiate_chat, b, message="3", summary_args={"summary_prompt": 5}, **reflect)
    c, d = assistant(lib, "c", "of the sender"), scripted(lib, "d", *"123")
    yield c.initiate_chat(d, message="4", **reflect)
    yield outcome(c.initiate_chat, d, message="5", summary_args={"summary_role": 5}, **reflect)
    c = assistant(lib, "c", "of the sender")
    yield asyncio.run(c.a_initiate_chat(d, message="6", **reflect))


def nested(lib):
    writer = assistant(lib, "writer", "a draft", "a better draft")
    critic = assistant(lib, "critic", "a critique", "the reflection")
    user = scripted(lib, "user", "Improve it.")

    def ask(recipient, messages, sender, config):
        return f"Criticize: {recipient.chat_messages_for_summary(sender)[-1]['content']}"

    chat = {"recipient": critic, "message": ask, "summary_method": "reflection_with_llm"}
    user.register_nested_chats([{**chat, "max_turns": 1}], trigger=writer)
    yield user.initiate_chat(writer, message="Write.", max_turns=2)
