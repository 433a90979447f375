"""A model selects the speaker of a group chat: what it is asked, and when it is asked again."""

import asyncio

from scripted import ScriptedModel, model_config, outcome, scripted

TEMPLATES = {
    "select_speaker_message_template": "The roles are {roles}. Choose from {agentlist}.",
    "select_speaker_auto_multiple_template": "Several of {agentlist}.",
    "select_speaker_auto_none_template": "None of {agentlist}.",
}


def run(lib):
    for verbose in (False, True):
        yield talk(lib, "b", "c", select_speaker_auto_verbose=verbose)
    for answers in (
        ["nobody", "b and c", "c"],
        ["b and c", "b and c", "b and c"],
        ["x", "y", ""],
        ["B", "I am b, and b goes on", "-"],
    ):
        yield talk(lib, *answers, max_round=2, select_speaker_auto_verbose=True)
    one_try = {"max_retries_for_selecting_speaker": 0, "max_round": 2}
    yield talk(lib, "none", select_speaker_auto_verbose=True, **one_try)
    yield talk(lib, "c", role_for_select_speaker_messages="user", max_round=2)
    yield talk(lib, "c", allow_repeat_speaker=False, max_round=2)
    yield talk(lib, "c", select_speaker_prompt_template="Who of {agentlist}?", max_round=2)
    yield talk(lib, "c", speaker_selection_method=lambda last, chat: "auto", max_round=2)
    yield talk(lib, max_round=2)
    limiter = lib.MessageHistoryLimiter(max_messages=1)
    last_only = lib.TransformMessages(transforms=[limiter], verbose=False)
    yield talk(lib, "c", max_round=2, select_speaker_transform_messages=last_only)
    yield asyncio.run(a_talk(lib))


def group(lib, *answers, **options):
    agents = [scripted(lib, name, f"{name}1", description=f"says {name}") for name in "abc"]
    chat = lib.GroupChat(
        agents,
        [],
        select_speaker_auto_llm_config=model_config(*answers),
        select_speaker_auto_model_client_cls=ScriptedModel,
        **{"max_round": 3, **TEMPLATES, **options},
    )
    return agents[0], lib.GroupChatManager(chat, llm_config=False)


def talk(lib, *answers, **options):
    first, manager = group(lib, *answers, **options)
    return outcome(first.initiate_chat, manager, message="go")


async def a_talk(lib):
    first, manager = group(lib, "nobody", "b", max_round=2, select_speaker_auto_verbose=True)
    return await first.a_initiate_chat(manager, message="asynchronous")
