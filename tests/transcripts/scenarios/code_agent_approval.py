"""A CodeExecutorAgent asks before it runs code."""

from collections.abc import AsyncGenerator
from typing import Any

from scripted import shown

CODE = "```python\nprint('hello')\n```\n\n```sh\necho shell\n```\n"


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    requests: list[Any] = []

    def refuse(request: Any) -> Any:
        requests.append([request.code, request.context])
        return lib.ApprovalResponse(approved=False, reason="Not today.")

    async def accept(request: Any) -> Any:
        requests.append([request.code, request.context])
        return lib.ApprovalResponse(approved=True, reason="Fine.")

    async with lib.LocalCommandLineCodeExecutor() as executor:
        for decide in (refuse, accept):
            agent = lib.CodeExecutorAgent("terminal", executor, approval_func=decide)
            async for item in agent.run_stream(task=CODE):
                if text := shown(item):
                    yield text
            client = lib.ReplayChatCompletionClient([CODE, "That is all."])
            agent = lib.CodeExecutorAgent(
                "coder", executor, model_client=client, approval_func=decide
            )
            async for item in agent.run_stream(task="Say hello."):
                if text := shown(item):
                    yield text
            try:
                yield agent.dump_component()
            except ValueError as error:
                yield error
    for request in requests:
        yield request
