"""Carryover: what the first message says of earlier chats."""

from scripted import outcome, scripted


def run(lib):
    a, b = scripted(lib, "a"), scripted(lib, "b", *"123456789")
    for carryover in ("C", ["C", 3, {"k": 1}, {"content": "of a message"}], "", [], None):
        yield a.initiate_chat(b, message="m", max_turns=1, carryover=carryover)
    yield a.initiate_chat(b, message={"content": "d", "x": 1}, max_turns=1, carryover="C")
    parts = [{"type": "text", "text": "t"}]
    yield a.initiate_chat(b, message={"content": parts}, max_turns=1, carryover=["C", "D"])
    yield parts
    for message in ("", {"content": ""}, {"content": None}, {"k": 1}):
        yield a.generate_init_message(message, carryover="C")
    image = [{"type": "image_url", "image_url": {"url": "http://x"}}]
    yield a.generate_init_message({"content": image, "k": 1}, carryover=["C", 2])
    for carryover in (5, {"a": 1}, ("C",)):
        yield outcome(a.initiate_chat, b, message="m", max_turns=1, carryover=carryover)
