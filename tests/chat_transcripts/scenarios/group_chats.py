"""Group chats by turn: what is printed and stored, how they end, introductions."""

from scripted import outcome, scripted


def run(lib):
    yield from ends(lib)
    yield from introductions(lib)
    yield from plugin(lib)
    yield from starters(lib)
    yield from interrupted(lib)
    yield from nested(lib)


def group(lib, agents, manager=None, **options):
    settings = {"speaker_selection_method": "round_robin", **options}
    chat = lib.GroupChat(agents, [], **settings)
    return chat, lib.GroupChatManager(chat, **{"llm_config": False, **(manager or {})})


def three(lib, last="c1", **options):
    a, b = scripted(lib, "a", "a1", "a2", **options), scripted(lib, "b", "b1", "b2", **options)
    return [a, b, scripted(lib, "c", last, **options)]


def stored(*agents):
    for agent in agents:
        yield agent.chat_messages


def ends(lib):
    agents = three(lib)
    chat, manager = group(lib, agents, max_round=4)
    yield agents[0].initiate_chat(manager, message="four rounds")
    yield from stored(*agents, manager)
    yield chat.messages, manager.last_speaker, manager.description, manager.name
    yield agents[0].initiate_chat(manager, message="goes on", clear_history=False)
    yield chat.messages, manager.chat_messages_for_summary(agents[1])
    for last in ("TERMINATE", "", None, {"content": "as a dict", "role": "user"}):
        agents = three(lib, last)
        chat, manager = group(lib, agents)
        yield agents[0].initiate_chat(manager, message="until the end")
        yield chat.messages
    agents = three(lib)
    over = {"is_termination_msg": lambda message: "b1" in message["content"]}
    chat, manager = group(lib, agents, over)
    yield agents[0].initiate_chat(manager, message="until b1")
    yield agents[0].initiate_chat(manager, message="b1 at once")
    chat, manager = group(lib, three(lib), {"silent": True, "name": "boss"}, max_round=3)
    yield chat.agents[0].initiate_chat(manager, message="silent", max_turns=2)
    yield outcome(manager.reset), chat.messages


def plugin(lib):
    agents, deputy = three(lib), scripted(lib, "deputy")
    chat, _ = group(lib, agents, max_round=3)
    options = {"config": chat, "reset_config": lib.GroupChat.reset}
    deputy.register_reply(lib.Agent, lib.GroupChatManager.run_chat, **options)
    yield agents[0].initiate_chat(deputy, message="another agent runs it")
    yield outcome(agents[1].initiate_chat, deputy, message={"function_call": {"name": "f"}})
    yield chat.messages


def introductions(lib):
    agents = three(lib, description="talks")
    chat, manager = group(lib, agents, max_round=2, send_introductions=True)
    yield agents[0].initiate_chat(manager, message="who are we?")
    yield from stored(*agents)
    yield chat.messages, chat.introductions_msg([agents[1]])


def starters(lib):
    agents, outsider = three(lib), scripted(lib, "outsider")
    chat, manager = group(lib, agents, max_round=3)
    yield outsider.initiate_chat(manager, message={"content": "from outside", "name": "other"})
    yield from stored(outsider, *agents, manager)
    yield chat.messages
    for count in (0, 1):
        _, manager = group(lib, agents[:count])
        yield outcome(outsider.initiate_chat, manager, message="too few")


def interrupted(lib):
    def interrupt(recipient, messages, sender, config):
        raise KeyboardInterrupt

    def fail(recipient, messages, sender, config):
        raise RuntimeError("no reply")

    agents = three(lib)
    agents[1].register_reply(lib.Agent, interrupt)
    chat, manager = group(lib, agents, max_round=5, admin_name="c")
    yield agents[0].initiate_chat(manager, message="the admin takes over")
    agents = three(lib)
    agents[1].register_reply(lib.Agent, fail)
    chat, manager = group(lib, agents)
    yield outcome(agents[0].initiate_chat, manager, message="an agent fails")
    yield chat.messages


def nested(lib):
    agents, leader, writer = three(lib), scripted(lib, "leader", "l1"), scripted(lib, "writer")
    chat, manager = group(lib, agents, max_round=3)
    entry = {"recipient": manager, "message": "Discuss.", "summary_method": "last_msg"}
    writer.register_nested_chats([entry], trigger=lambda sender: sender is not manager)
    outer, outer_manager = group(lib, [leader, writer], {"name": "outer"}, max_round=3)
    yield leader.initiate_chat(outer_manager, message="nested")
    yield outer.messages, chat.messages
    team, team_manager = group(lib, [leader, manager], {"name": "team"}, max_round=3)
    yield [agent.name for agent in team.nested_agents()]
    yield team.agent_by_name("a"), team.agent_by_name("a", recursive=True)
    twice, _ = group(lib, [scripted(lib, "a"), manager])
    yield outcome(twice.agent_by_name, "a", recursive=True, raise_on_name_conflict=True)
    yield leader.initiate_chat(team_manager, message="a team in a team")
