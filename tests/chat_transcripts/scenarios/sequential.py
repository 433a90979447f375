"""Sequential chats: summaries go on to the next chat."""

from scripted import outcome, scripted


def run(lib):
    yield from queues(lib)
    yield from verbose(lib)
    yield from bad_queues(lib)


def queues(lib):
    a = scripted(lib, "a")
    b, c, d = (scripted(lib, name, *[f"{name}{i}" for i in range(5)]) for name in "bcd")
    yield a.initiate_chats(
        [
            {"recipient": b, "message": "to b", "max_turns": 1},
            {"recipient": c, "message": "to c", "max_turns": 1, "carryover": "extra"},
            {"recipient": d, "message": lambda s, r, given: str(sorted(given)), "max_turns": 1},
        ]
    )
    yield a.get_chat_results(1)
    yield lib.initiate_chats(
        [
            {"sender": a, "recipient": b, "message": "1", "max_turns": 1, "silent": True},
            {
                "sender": d,
                "recipient": c,
                "message": {"content": "2"},
                "max_turns": 1,
                "finished_chat_indexes_to_exclude_from_carryover": [0],
                "carryover": ["x"],
                "summary_method": None,
            },
            {"sender": a, "recipient": d, "message": "3", "max_turns": 1, "carryover": "own"},
        ]
    )
    chat = {"recipient": b, "message": "x", "max_turns": 1}
    yield a.initiate_chats([{**chat}, {**chat, "clear_history": False, "message": "y"}])[1]
    yield a.initiate_chats([{**chat, "sender": c}])
    yield a.initiate_chats([{**chat}, {**chat, "message": "its history starts again"}])
    queue = [{**chat}, {**chat, "recipient": c, "carryover": "own"}]
    yield a.initiate_chats(queue)[1]
    yield [sorted(entry) for entry in queue], queue[1]["carryover"]
    yield a.initiate_chats([])


def verbose(lib):
    a, b, c, d = (scripted(lib, name, f"{name}1") for name in "abcd")
    given = ["cc", {"content": "x"}, {"z": 1}, 3]
    options = {"max_turns": 1, "verbose": True}
    yield a.initiate_chats(
        [
            {"recipient": b, "message": "m", "carryover": "cc", **options},
            {"recipient": c, "message": first_message, "carryover": given, **options},
            {"recipient": d, "message": {"content": "mm"}, **options},
        ]
    )
    for silent in (False, True):
        yield a.initiate_chats([{"recipient": d, "message": "m", "silent": silent, **options}])


def first_message(sender, recipient, context):
    return f"said by {sender.name} to {recipient.name}"


def bad_queues(lib):
    a, b = scripted(lib, "a"), scripted(lib, "b", *"12345")
    chat = {"sender": a, "recipient": b, "message": "x", "max_turns": 1}
    for name in ("sender", "recipient"):
        yield outcome(lib.initiate_chats, [{key: chat[key] for key in chat if key != name}])
    yield outcome(lib.initiate_chats, [{**chat, "summary_method": "other"}])
    yield outcome(lib.initiate_chats, [{**chat, "summary_method": "reflection_with_llm"}])
