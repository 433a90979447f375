"""Asynchronous chats ask a human in the same way."""

import asyncio

from scripted import scripted

ANSWERS = ["my own words", "again", "exit", "go on", "exit"]


def run(lib):
    human = scripted(lib, "human", human_input_mode="ALWAYS")
    b = scripted(lib, "b", *[f"b{i}" for i in range(9)])
    yield asyncio.run(human.a_initiate_chat(b, message="start"))
    human = scripted(lib, "later", *[f"auto {i}" for i in range(9)], human_input_mode="TERMINATE")
    b = scripted(lib, "b", "b1", "TERMINATE", "b2", "TERMINATE", "b3")
    yield asyncio.run(human.a_initiate_chat(b, message="until the termination message"))
    yield human.chat_messages
