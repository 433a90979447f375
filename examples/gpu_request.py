"""An agent looks for a GPU. In a container, the engine is asked for one first.

    python examples/gpu_request.py [--docker [IMAGE]]

The sandbox shows no devices of the machine. A container gets them by `device_requests`.
"""

from __future__ import annotations

import asyncio

from settings import Settings, read_settings

from cellblock import BackendError, CancellationToken, CodeExecutor, DockerCommandLineCodeExecutor
from cellblock.agents import CodeExecutorAgent, TextMessage

ALL_GPUS = [{"count": -1, "capabilities": [["gpu"]]}]  # or docker.types.DeviceRequest(...)

MESSAGE = """Which GPU do you have?

```bash
if command -v nvidia-smi > /dev/null; then nvidia-smi -L; else echo "There is no GPU here."; fi
```
"""


async def look(executor: CodeExecutor) -> None:
    """Let an agent look for a GPU. Raise `BackendError` if the executor cannot start."""
    async with executor:
        agent = CodeExecutorAgent("code_executor", executor)
        message = TextMessage(content=MESSAGE, source="user")
        response = await agent.on_messages([message], CancellationToken())
        print(response.chat_message.to_text())


async def main(settings: Settings) -> None:
    if settings.docker is not None:
        try:
            await look(DockerCommandLineCodeExecutor(settings.docker, device_requests=ALL_GPUS))
            return
        except BackendError as error:
            print(f"No container with a GPU: {error}")
    await look(settings.executor())


if __name__ == "__main__":
    asyncio.run(main(read_settings("gpu_request", __doc__)))
