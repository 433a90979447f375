"""Who speaks next: by turn, by chance, by a function, by the transitions, by who can answer."""

from scripted import outcome, scripted, tool_call


def run(lib):
    yield from settings(lib)
    yield from helpers(lib)
    yield from functions(lib)
    yield from transitions(lib)
    yield from calls(lib)


def three(lib, **options):
    return [scripted(lib, name, *(f"{name}{i}" for i in range(9)), **options) for name in "abc"]


def speakers(lib, agents, **options):
    chat = lib.GroupChat(agents, [], **{"max_round": 5, **options})
    manager = lib.GroupChatManager(chat, llm_config=False)
    ended = outcome(agents[0].initiate_chat, manager, message="go")
    names = [message["name"] for message in chat.messages]
    return ended if isinstance(ended, Exception) else names


def settings(lib):
    agents = three(lib)
    a, b, c = agents
    given = [
        {"max_retries_for_selecting_speaker": -1},
        {"max_retries_for_selecting_speaker": "1"},
        {"select_speaker_message_template": ""},
        {"select_speaker_auto_multiple_template": ""},
        {"select_speaker_auto_none_template": None},
        {"role_for_select_speaker_messages": ""},
        {"select_speaker_auto_verbose": None},
        {"select_speaker_transform_messages": "x"},
        {"allow_repeat_speaker": 5},
        {"speaker_transitions_type": "other"},
        {"allowed_or_disallowed_speaker_transitions": {a: [b]}},
        {
            "allowed_or_disallowed_speaker_transitions": {a: [b], b: [a]},
            "speaker_transitions_type": "allowed",
            "allow_repeat_speaker": True,
        },
    ]
    for options in given:
        yield outcome(lib.GroupChat, agents, [], **options)
    for key in ("functions", "tools"):
        config = {"config_list": [{"model": "m", "api_key": "k"}], key: [{"name": "f"}]}
        yield outcome(lib.GroupChatManager, lib.GroupChat(agents, []), llm_config=config)
    for repeat in (None, True, False, [a]):
        yield lib.GroupChat(
            agents, [], allow_repeat_speaker=repeat
        ).allowed_speaker_transitions_dict


def helpers(lib):
    a, b, c = three(lib)
    d = scripted(lib, "d")
    chat = lib.GroupChat([a, b, c], [])
    yield chat.agent_names, chat.agent_by_name("b"), chat.agent_by_name("B")
    for last, candidates in [(a, None), (c, None), (a, [a]), (b, [a, c]), (d, [b, c]), (d, None)]:
        yield chat.next_agent(last, candidates)
    yield outcome(chat.next_agent, a, [d]), outcome(chat.next_agent, a, [])
    yield chat.random_select_speaker([b])
    yield chat.select_speaker_prompt(), chat.select_speaker_prompt([a, b])
    templates = {"select_speaker_message_template": "{agentlist} of {roles}"}
    yield lib.GroupChat([a, b], [], **templates).select_speaker_msg([b])
    writer = scripted(lib, "story_writer")
    named = lib.GroupChat([a, b, writer], [])
    texts = ["b", "B", "a and b b", "ab", "[b], a.", "x+y", "story writer", r"story\_writer"]
    yield [
        named._mentioned_agents(text, None)
        for text in [*texts, "Story_writer", None, [{"type": "text", "text": "a"}]]
    ]


def functions(lib):
    by_function = [
        lambda last, chat: chat.agents[1],
        lambda last, chat: None,
        lambda last, chat: "round_robin",
        lambda last, chat: "other",
        lambda last, chat: 5,
        lambda last, chat: scripted(lib, "stranger"),
        lambda last, chat: last,
        lambda last, chat: None if len(chat.messages) > 2 else chat.next_agent(last),
        lambda last, chat: 1 / 0,
    ]
    for function in by_function:
        yield speakers(lib, three(lib), speaker_selection_method=function)
    for method in ("Round_Robin", "other", "random"):
        yield speakers(
            lib, three(lib)[:2], speaker_selection_method=method, allow_repeat_speaker=[]
        )


def transitions(lib):
    for method in ("round_robin", "random", "auto"):
        a, b, c = three(lib)
        for kind, graph in [
            ("allowed", {a: [c], b: [a], c: [b]}),
            ("Allowed", {a: [b], b: [c]}),
            ("disallowed", {a: [a, b], b: [b, c], c: [c, a]}),
        ]:
            options = {"speaker_transitions_type": kind, "speaker_selection_method": method}
            options["allowed_or_disallowed_speaker_transitions"] = graph
            yield speakers(lib, [a, b, c], **options)
    a, b, c = three(lib)
    for kind, graph in [
        ("allowed", {a: b}),
        ("allowed", {"a": [b]}),
        ("allowed", {a: ["b"]}),
        ("allowed", [a]),
        ("allowed", {scripted(lib, "d"): [a]}),
        ("allowed", {a: [b, b]}),
    ]:
        options = {"speaker_transitions_type": kind}
        options["allowed_or_disallowed_speaker_transitions"] = graph
        made = outcome(lib.GroupChat, [a, b, c], [], **options)
        yield made if isinstance(made, Exception) else made.allowed_speaker_transitions_dict


def calls(lib):
    for filtered in (True, False):
        for maps in ([], ["c"], ["b", "c"], ["other"]):
            a, b, c = three(lib)
            wanted = {"content": None, "tool_calls": [tool_call("double", '{"x": 2}')]}
            caller = scripted(lib, "caller", wanted, "thanks")
            for agent in (b, c):
                if agent.name in maps:
                    agent.register_function({"double": lambda x: 2 * x})
                if "other" in maps:
                    agent.register_function({"other": len})
            options = {"func_call_filter": filtered, "speaker_selection_method": "round_robin"}
            yield speakers(lib, [a, caller, b, c], **options)
    a, b, c = three(lib)
    c.register_function({"double": lambda x: 2 * x})
    wanted = {"content": None, "function_call": {"name": "double", "arguments": '{"x": 2}'}}
    caller = scripted(lib, "caller", wanted, "thanks")
    graph = {a: [caller], caller: [a], c: [a]}
    yield speakers(
        lib,
        [a, caller, c],
        speaker_selection_method="round_robin",
        allowed_or_disallowed_speaker_transitions=graph,
        speaker_transitions_type="allowed",
    )
