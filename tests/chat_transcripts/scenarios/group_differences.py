"""Group chats where Cellblock does something else than AutoGen, on purpose."""

import asyncio

from scripted import ScriptedModel, model_config, outcome, scripted, with_model


def run(lib):
    yield from dead_ends(lib)
    yield same_name(lib)
    yield no_prompt(lib)
    yield model_of_the_manager(lib)
    yield asynchronous_clear_history(lib)
    yield more_than_there_is(lib)
    yield function_message_resumed(lib)


def three(lib):
    return [scripted(lib, name, f"{name}1", f"{name}2") for name in "abc"]


def spoken(lib, agents, message="go", manager=None, **options):
    settings = {"max_round": 4, "speaker_selection_method": "round_robin", **options}
    chat = lib.GroupChat(agents, [], **settings)
    manager = lib.GroupChatManager(chat, **{"llm_config": False, "silent": True, **(manager or {})})
    ended = outcome(agents[0].initiate_chat, manager, message=message, silent=True)
    return ended if isinstance(ended, Exception) else [each["content"] for each in chat.messages]


def dead_ends(lib):
    a, b, c = three(lib)
    for graph in ({a: [b], b: [], c: [a]}, {a: [scripted(lib, "d")], b: [a], c: [a]}):
        kind = {"speaker_transitions_type": "allowed"}
        yield spoken(lib, [a, b, c], allowed_or_disallowed_speaker_transitions=graph, **kind)


def same_name(lib):
    twins = [
        scripted(lib, "twin", "first"),
        scripted(lib, "twin", "second"),
        scripted(lib, "c", "c1"),
    ]
    return spoken(lib, twins, max_round=3)


def no_prompt(lib):
    return spoken(
        lib,
        three(lib),
        max_round=2,
        speaker_selection_method="auto",
        select_speaker_prompt_template=None,
        select_speaker_message_template="Choose from {agentlist}.",
        select_speaker_auto_llm_config=model_config("b"),
        select_speaker_auto_model_client_cls=ScriptedModel,
    )


def model_of_the_manager(lib):
    agents = three(lib)
    template = {"select_speaker_message_template": "Choose from {agentlist}."}
    chat = lib.GroupChat(agents, [], max_round=2, **template)
    manager = with_model(lib.GroupChatManager(chat, llm_config=model_config("c")))
    return outcome(agents[0].initiate_chat, manager, message="go")


def asynchronous_clear_history(lib):
    a, b, _ = three(lib)
    human = scripted(lib, "human", {"content": "CLEAR HISTORY b again", "role": "user"})
    chat = lib.GroupChat(
        [a, b, human],
        [],
        max_round=3,
        enable_clear_history=True,
        speaker_selection_method="round_robin",
    )
    manager = lib.GroupChatManager(chat, llm_config=False)
    asyncio.run(a.a_initiate_chat(manager, message="go"))
    return b.chat_messages


def more_than_there_is(lib):
    human = scripted(lib, "human", {"content": "CLEAR HISTORY 9 again", "role": "user"})
    agents = [*three(lib)[:2], human]
    return spoken(lib, agents, enable_clear_history=True, max_round=3)


def function_message_resumed(lib):
    agents = three(lib)
    manager = lib.GroupChatManager(lib.GroupChat(agents, []))
    result = {"content": "4", "role": "function", "name": "double"}
    last = {"content": "done", "role": "user", "name": "c"}
    return outcome(manager.resume, [result, last])
