"""A human answers every message: replies, skips, corrects, ends."""

from scripted import scripted

ANSWERS = ["my own words", "", "", "  ", "exit", "first", "", "exit", "asked first", "", "exit"]


def run(lib):
    human = scripted(lib, "human", "auto 1", "auto 2", human_input_mode="ALWAYS")
    b = scripted(lib, "b", *[f"b{i}" for i in range(20)])
    yield human.initiate_chat(b, message="start")
    human = lib.UserProxyAgent("proxy", code_execution_config=False, default_auto_reply="default")
    yield human.initiate_chat(b, message="with a proxy")
    yield human.initiate_chat(b, clear_history=False)
    yield human.chat_messages
