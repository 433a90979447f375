"""Agents: defaults, and what is refused."""

from scripted import outcome


def run(lib):
    for make in (lib.ConversableAgent, lib.AssistantAgent, lib.UserProxyAgent):
        agent = make("a")
        yield agent.name, agent.description, agent.human_input_mode, agent.llm_config
        yield agent.max_consecutive_auto_reply(), agent.function_map, agent.chat_messages
        yield agent.DEFAULT_SUMMARY_METHOD, agent.DEFAULT_SUMMARY_PROMPT, agent.DEFAULT_CONFIG
        yield [each["reply_func"] for each in agent._reply_func_list]
        yield agent.code_executor is None, agent.use_docker, agent.client
    for mode in ("ALWAYS", "TERMINATE", "NEVER"):
        yield lib.UserProxyAgent("a", human_input_mode=mode).description
    assistant = lib.AssistantAgent("a", system_message="Be brief.")
    yield assistant.system_message, assistant.description
    described = lib.AssistantAgent("a", description="Describes itself.")
    yield described.description
    described.description = "Otherwise."
    yield described.description
    for config in ({}, {"config_list": []}, {"config_list": [{"model": ""}]}, 5, "text", True):
        yield outcome(lib.ConversableAgent, "a", llm_config=config)
    for config in (5, "text"):
        yield outcome(lib.ConversableAgent, "a", code_execution_config=config)
    for key in ("use_docker", "work_dir", "timeout"):
        config = {"executor": "commandline-local", key: 1}
        yield outcome(lib.ConversableAgent, "a", code_execution_config=config)
    for name in ("a b", "", "ü", "a" * 65, "a.b", "ok\n", "ok-1_"):
        yield outcome(lib.ConversableAgent._assert_valid_name, name)
        yield lib.ConversableAgent._normalize_name(name)
    greeted = lib.ConversableAgent("b", chat_messages={assistant: [{"content": "earlier"}]})
    yield greeted.chat_messages, greeted.last_message()
    yield lib.ConversableAgent("b", default_auto_reply="auto").generate_reply([{"content": "x"}])
