"""Changes to the messages that an agent sees; the stored ones stay."""

import asyncio

from scripted import outcome

WITH_TOOL = [
    {"role": "user", "content": "u1", "name": "bob"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "r", "tool_responses": [{"tool_call_id": "1", "content": "r"}]},
    {"role": "assistant", "content": "a2", "name": "al"},
    {"role": "user", "content": "u2", "name": "bob"},
]


def run(lib):
    yield from history(lib)
    yield from names(lib)
    yield from chat(lib)


def history(lib):
    for count in (None, 1, 2, 3, 4, 9):
        for keep_first_message in (False, True):
            limiter = lib.MessageHistoryLimiter(count, keep_first_message)
            kept = limiter.apply_transform(WITH_TOOL)
            yield [each["content"] for each in kept]
            yield limiter.get_logs(WITH_TOOL, kept)
    yield outcome(lib.MessageHistoryLimiter, 0)


def names(lib):
    for options in (
        {},
        {"position": "end", "format_string": " -{name}"},
        {"filter_dict": {"role": ["user"]}},
        {"filter_dict": {"role": ["user"]}, "exclude_filter": False},
    ):
        named = lib.TextMessageContentName(**options).apply_transform(WITH_TOOL)
        twice = lib.TextMessageContentName(**options).apply_transform(named)
        yield [each["content"] for each in named], twice == named


def listener(lib, **options):
    agent = lib.ConversableAgent("agent", human_input_mode="NEVER", llm_config=False)

    def reply(recipient, messages, sender, config):
        return True, f"I see {[each['content'] for each in messages]}"

    agent.register_reply([lib.Agent, None], reply)
    limiter = lib.MessageHistoryLimiter(max_messages=2)
    lib.TransformMessages(transforms=[limiter], **options).add_to_agent(agent)
    return agent


def chat(lib):
    agent = listener(lib)
    user = lib.ConversableAgent(
        "user", human_input_mode="NEVER", llm_config=False, default_auto_reply="more"
    )
    yield user.initiate_chat(agent, message="begin", max_turns=3)
    yield agent.chat_messages
    system = {"role": "system", "content": "rules"}
    yield listener(lib).generate_reply([system, *WITH_TOOL])
    yield listener(lib, verbose=False).generate_reply(WITH_TOOL)
    yield asyncio.run(listener(lib).a_generate_reply(WITH_TOOL))
