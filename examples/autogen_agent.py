"""An agent of AutoGen 0.7 whose code runs in Cellblock's sandbox.

Needs `pip install autogen-agentchat autogen-ext`. The model client replays two messages: replace it
with a real one.
"""

import asyncio

from autogen_agentchat.agents import ApprovalResponse, CodeExecutorAgent
from autogen_ext.models.replay import ReplayChatCompletionClient

from cellblock import SandboxCommandLineCodeExecutor
from cellblock.integrations.autogen import AutoGenCodeExecutor


def approve(request):
    return ApprovalResponse(approved=True, reason="The sandbox contains it.")


async def main() -> None:
    model = ReplayChatCompletionClient(["```python\nprint(6 * 7)\n```", "The answer is 42."])
    async with AutoGenCodeExecutor(SandboxCommandLineCodeExecutor(timeout=10)) as executor:
        agent = CodeExecutorAgent("coder", executor, model_client=model, approval_func=approve)
        result = await agent.run(task="What is six times seven?")
    print(result.messages[-1].content)


asyncio.run(main())
