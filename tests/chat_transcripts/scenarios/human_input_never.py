"""Nobody is asked: limits and termination messages end chats. Direct replies."""

from scripted import outcome, scripted


def run(lib):
    options = {"human_input_mode": "NEVER", "max_consecutive_auto_reply": 2}
    a = scripted(lib, "a", *"123456", **options)
    b = scripted(lib, "b", *"789abc")
    yield a.initiate_chat(b, message="until the limit")
    a.update_max_consecutive_auto_reply(1, b)
    yield a.max_consecutive_auto_reply(b), a.max_consecutive_auto_reply()
    yield a.initiate_chat(b, message="until the new limit")
    zero = scripted(lib, "zero", "never said", max_consecutive_auto_reply=0)
    yield b.initiate_chat(zero, message="no reply")
    for content in ("TERMINATE", "please TERMINATE", "terminate", ""):
        yield b.generate_reply(messages=[{"role": "user", "content": content}])

    def broken(message):
        raise RuntimeError("the test of the end failed")

    c = scripted(lib, "c", "c1", is_termination_msg=broken)
    yield outcome(b.initiate_chat, c, message="is stored")
    yield b.chat_messages[c]
