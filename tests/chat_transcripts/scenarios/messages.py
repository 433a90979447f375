"""Messages: what is stored and printed, and which messages are refused."""

from scripted import outcome, scripted, tool_call

FUNCTION = {"name": "f", "arguments": '{"x": 1}'}
RESULT = {"tool_call_id": "call_1", "role": "tool", "content": "r"}


def run(lib):
    messages = [
        "text",
        "",
        {"content": "a dict", "other": "not stored"},
        {"content": "named", "name": "somebody"},
        {"content": "with a role", "role": "system"},
        {"content": "overridden", "override_role": "system"},
        {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
        {"content": "Hello {name}!", "context": {"name": "World"}},
        {"content": lambda context: f"It is {context['it']}.", "context": {"it": "a function"}},
        {"content": None, "function_call": FUNCTION},
        {"content": "with text", "function_call": FUNCTION},
        {"content": "c", "role": "tool", "override_role": "user", "function_call": FUNCTION},
        {"content": "no calls", "tool_calls": []},
        {"content": None, "function_call": {}},
        {"content": "result", "role": "function", "name": "f"},
        {"content": None, "tool_calls": [tool_call("f", "{}"), tool_call("g", "{}", "call_2")]},
        {"content": None, "tool_calls": [{"function": {}}]},
        {"content": "result", "role": "tool", "tool_call_id": "call_1"},
        {"content": "results", "role": "tool", "tool_responses": [RESULT, RESULT]},
        {"content": "interrupted", "role": "user", "tool_responses": [RESULT]},
    ]
    for message in messages:
        a, b = scripted(lib, "a"), scripted(lib, "b")
        yield outcome(a.send, message, b, request_reply=False)
        yield a.chat_messages
        yield b.chat_messages
    yield from refused(lib)
    yield from last_messages(lib)


def refused(lib):
    a, b = scripted(lib, "a"), scripted(lib, "b")
    for message in ({}, {"content": None}, {"name": "x"}, {"tool_responses": [{}]}):
        yield outcome(a.send, message, b)
        yield outcome(b.receive, message, a)
    yield a.chat_messages
    yield outcome(a.generate_reply)


def last_messages(lib):
    a, b, c = (scripted(lib, name) for name in "abc")
    yield a.last_message()
    a.send("to b", b, request_reply=False, silent=True)
    yield a.last_message()
    yield outcome(a.last_message, c)
    a.send("to c", c, request_reply=False, silent=True)
    yield outcome(a.last_message)
    yield a.last_message(c)
    yield a.chat_messages_for_summary(b)
    a.clear_history(b)
    yield a.chat_messages
    a.reset()
    yield a.chat_messages
