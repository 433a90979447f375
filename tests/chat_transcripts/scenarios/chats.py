"""Two agents: turns, endings, stored messages, history, summaries, silence, bad input."""

from scripted import outcome, scripted


def run(lib):
    a = scripted(lib, "a", "a1", "a2", "a3")
    b = scripted(lib, "b", "b1 TERMINATE x TERMINATE ", "b2", "b3")
    yield a.initiate_chat(b, message="hi", max_turns=2)
    yield a.chat_messages
    yield b.chat_messages
    yield a.last_message(b), b.last_message()
    yield a.initiate_chat(b, message="again", clear_history=False, max_turns=1)
    yield a.initiate_chat(b, message={"content": "more"})
    yield from endings(lib)
    yield from messages(lib)
    yield from summaries(lib)
    yield from silence(lib)


def endings(lib):
    a, b = scripted(lib, "a", "a1"), scripted(lib, "b", "b1", "b2", "b3")
    yield a.initiate_chat(b, message="until a has no reply", max_turns=5)
    yield a.reply_at_receive[b], b.reply_at_receive[a]
    yield a.initiate_chat(b, message="no turn", max_turns=0)
    a, b = scripted(lib, "a", "a1"), scripted(lib, "b", "b1", "b2", "b3")
    yield a.initiate_chat(b, message="until a has no reply")
    yield a.reply_at_receive[b], b.reply_at_receive[a]
    ends = {"is_termination_msg": lambda message: "bye" in message["content"]}
    a, b = scripted(lib, "a", "one", "bye"), scripted(lib, "b", "b1", "b2", **ends)
    yield a.initiate_chat(b, message="until b is told bye")
    limited = {"max_consecutive_auto_reply": 2}
    a, b = scripted(lib, "a", *"1234"), scripted(lib, "b", *"5678", **limited)
    yield a.initiate_chat(b, message="until the limit of b")
    itself = scripted(lib, "itself", *"123")
    yield itself.initiate_chat(itself, message="alone", max_turns=1)


def messages(lib):
    a, b = scripted(lib, "a"), scripted(lib, "b", *"123456789")
    yield a.initiate_chat(b, message=lambda *given: context(*given), max_turns=1)
    yield a.initiate_chat(b, message=context, max_turns=1, carryover="C", other=1)
    yield a.initiate_chat(b, message=lambda *_: {"content": "a dict"}, max_turns=1)
    parts = [{"type": "text", "text": "TERMINATE one"}, {"type": "text", "text": " two"}]
    yield a.initiate_chat(b, message={"content": parts}, max_turns=1)
    yield a.initiate_chat(b, message="", max_turns=1)
    yield outcome(a.initiate_chat, b, message={"other": 1}, max_turns=1)
    yield outcome(a.initiate_chat, b, message={"content": None}, max_turns=1)


def context(sender, recipient, given):
    return f"{sender.name} to {recipient.name} with {given}"


def summaries(lib):
    a, b = scripted(lib, "a"), scripted(lib, "b", *"123456789")

    def summary(sender, recipient, arguments):
        return f"{sender.name} {recipient.name} {arguments}"

    options = {"message": "x", "max_turns": 1, "silent": True}
    yield a.initiate_chat(b, summary_method=None, **options)
    yield a.initiate_chat(b, summary_method=summary, summary_args={"z": 1}, **options)
    yield outcome(a.initiate_chat, b, summary_method="other", **options)
    yield outcome(a.initiate_chat, b, summary_method=4, **options)
    yield outcome(a.initiate_chat, b, summary_method="reflection_with_llm", **options)
    yield a.initiate_chat(scripted(lib, "c"), **options)
    parts = [{"type": "text", "text": "TERMINATE one"}, {"type": "text", "text": " two"}]
    yield a.initiate_chat(scripted(lib, "d", {"content": parts}), **options)


def silence(lib):
    for settings in ({"silent": True}, {"silent": False}):
        a, b = scripted(lib, "a", "a1", **settings), scripted(lib, "b", "b1", "b2")
        a.initiate_chat(b, message=f"{settings}", max_turns=2, silent=True)
        a.initiate_chat(b, message=f"{settings}", max_turns=2)
        yield settings
