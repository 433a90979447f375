"""A CodeExecutorAgent corrects its code after errors."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from scripted import MODEL_INFO, shown

BAD = "```python\nraise SystemExit('bad {n}')\n```\n"
GOOD = "```python\nprint('good')\n```\n"
RETRY = json.dumps({"reason": "I know why.", "retry": True})
STOP = json.dumps({"reason": "It is hopeless.", "retry": False})


def scripted(lib: Any, *answers: str, structured: bool = True) -> Any:
    info = {**MODEL_INFO, "structured_output": structured}
    return lib.ReplayChatCompletionClient(list(answers), model_info=info)


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    async with lib.LocalCommandLineCodeExecutor() as executor:
        for retries, answers in (
            (2, (BAD.format(n=1), RETRY, GOOD, "It is good.")),
            (3, (BAD.format(n=1), STOP, "It is bad.")),
            (1, (BAD.format(n=1), RETRY, BAD.format(n=2), "Two are bad.")),
            (0, (BAD.format(n=1), "One is bad.")),
            (2, (BAD.format(n=1), RETRY, "I write no more code.")),
        ):
            client = scripted(lib, *answers)
            agent = lib.CodeExecutorAgent(
                "coder", executor, model_client=client, max_retries_on_error=retries
            )
            async for item in agent.run_stream(task="Try."):
                if text := shown(item):
                    yield text
            yield [call["messages"][-1] for call in client.create_calls]
        for wrong in (None, scripted(lib, structured=False)):
            try:
                lib.CodeExecutorAgent("c", executor, model_client=wrong, max_retries_on_error=1)
            except ValueError as error:
                yield error
