"""A human skips a message in an asynchronous chat: one question a message."""

import asyncio

from scripted import scripted

ANSWERS = ["", "exit", "exit"]


def run(lib):
    human = scripted(lib, "human", "auto 1", "auto 2", human_input_mode="ALWAYS")
    b = scripted(lib, "b", *[f"b{i}" for i in range(9)])
    yield asyncio.run(human.a_initiate_chat(b, message="start"))
