"""A person as an agent: prompts, sync and async functions, handoffs, errors, in a team."""

from collections.abc import AsyncGenerator
from typing import Any


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    prompts: list[Any] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return f"answer {len(prompts)}"

    async def answer_later(prompt: str, token: Any) -> str:
        prompts.append([prompt, type(token).__name__])
        request = lib.UserProxyAgent.InputRequestContext.request_id()
        return f"answer {len(prompts)} {len(request)}"

    user = lib.UserProxyAgent("user", input_func=answer)
    yield user.description
    async for item in user.run_stream(task="hello?"):
        yield item
    yield await user.run()
    later = lib.UserProxyAgent("later", input_func=answer_later, description="slow")
    yield await later.run(task="hello?")
    handoff = lib.HandoffMessage(content="you", source="ann", target="later")
    yield await later.on_messages([handoff], lib.CancellationToken())
    try:
        await user.on_messages([handoff], lib.CancellationToken())
    except RuntimeError as error:
        yield str(error)[-60:]

    def fail(prompt: str) -> str:
        raise OSError("no terminal")

    try:
        await lib.UserProxyAgent("fails", input_func=fail).run(task="x")
    except RuntimeError as error:
        yield str(error)[-40:]
    team = lib.RoundRobinGroupChat(
        [later, user], termination_condition=lib.TextMentionTermination("answer 5", ["user"])
    )
    yield await team.run(task="talk")
    try:
        lib.UserProxyAgent.InputRequestContext.request_id()
    except RuntimeError as error:
        yield type(error).__name__
    yield prompts
