"""Chats side by side: each waits for its prerequisites."""

import asyncio

from scripted import scripted


def run(lib):
    a = scripted(lib, "a")
    b, c, d = (scripted(lib, name, *[f"{name}{i}" for i in range(5)]) for name in "bcd")

    def chat(chat_id, recipient, **options):
        entry = {"chat_id": chat_id, "recipient": recipient, "message": str(chat_id)}
        return {**entry, "max_turns": 1, **options}

    last = chat(3, d, prerequisites=[1, 2], carryover="own")
    yield asyncio.run(a.a_initiate_chats([chat(1, b), chat(2, c, prerequisites=[1]), last]))
    yield a.get_chat_results(3)
    quiet = {"silent": True}  # the order in which chats print that run side by side is not fixed
    yield asyncio.run(a.a_initiate_chats([chat(1, b, **quiet), chat(2, c, **quiet)]))
    excluded = {"finished_chat_indexes_to_exclude_from_carryover": [1]}
    without = chat(2, c, prerequisites=[1], **excluded)
    yield asyncio.run(a.a_initiate_chats([chat(1, b), without]))
    yield asyncio.run(a.a_initiate_chats([chat(1, b, prerequisites=[2]), chat(2, c)]))
    yield asyncio.run(a.a_initiate_chat(b, message="alone", max_turns=1, carryover="C"))
    yield asyncio.run(a.a_initiate_chat(b, message="until the end"))
