"""A human is asked at a termination message and at the limit of automatic replies."""

from scripted import scripted

ANSWERS = ["go on", "", "continue", "", "no, wait", "exit"]


def run(lib):
    human = scripted(lib, "human", *[f"auto {i}" for i in range(9)], human_input_mode="TERMINATE")
    b = scripted(lib, "b", "b1", "TERMINATE", "b2", "TERMINATE", "b3")
    yield human.initiate_chat(b, message="until the termination message")
    limited = {"human_input_mode": "TERMINATE", "max_consecutive_auto_reply": 1}
    human = scripted(lib, "limited", *[f"auto {i}" for i in range(9)], **limited)
    b = scripted(lib, "b", *[f"b{i}" for i in range(20)])
    yield human.initiate_chat(b, message="until the limit")
    yield human.chat_messages
