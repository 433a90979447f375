"""A human answers every message: replies, skips, corrects, ends."""

from scripted import scripted

ANSWERS = [
    "my own words", "", "", "  ", "exit", "first", "", "exit", "asked first", "", "exit",
    "", "", "exit", "go on", "",
]  # fmt: skip


def run(lib):
    human = scripted(lib, "human", "auto 1", "auto 2", human_input_mode="ALWAYS")
    b = scripted(lib, "b", *[f"b{i}" for i in range(20)])
    yield human.initiate_chat(b, message="start")
    human = lib.UserProxyAgent("proxy", code_execution_config=False, default_auto_reply="default")
    yield human.initiate_chat(b, message="with a proxy")
    yield human.initiate_chat(b, clear_history=False)
    yield human.chat_messages
    limited = {"human_input_mode": "ALWAYS", "max_consecutive_auto_reply": 1}
    yield scripted(lib, "limited", *"1234", **limited).initiate_chat(b, message="beyond the limit")
    ender = scripted(lib, "ender", "TERMINATE", "TERMINATE", "TERMINATE")
    human = scripted(lib, "human", *"1234", human_input_mode="ALWAYS")
    yield human.initiate_chat(ender, message="until a termination message is skipped")
