"""An agent of Pydantic AI writes a program, runs it, corrects it and runs it again."""

import asyncio

from pydantic_ai import Agent, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from cellblock import Sandbox
from cellblock.integrations.pydantic_ai import CellblockWorkspace

agent = Agent()


@agent.tool
async def shell(context: RunContext, command: str) -> str:
    done = await context.workspace.run(command, shell=True, timeout=30)
    return done.stdout + done.stderr


@agent.tool
async def edit(context: RunContext, path: str, old: str, new: str) -> str:
    text = await context.workspace.read_text(path) if old else ""
    await context.workspace.write_text(path, text.replace(old, new) if old else new)
    return "edited"


async def main():
    run = {"command": "seq 6 7 | python3 task/add.py"}
    answers = iter(
        [
            ToolCallPart("edit", {"path": "task/add.py", "old": "", "new": "print(sum(open(0)))"}),
            ToolCallPart("shell", run),
            ToolCallPart(
                "edit", {"path": "task/add.py", "old": "open(0)", "new": "map(int, open(0))"}
            ),
            ToolCallPart("shell", run),
            TextPart("The sum is 13."),
        ]
    )
    model = FunctionModel(lambda messages, info: ModelResponse([next(answers)]))
    async with Sandbox() as sandbox:
        workspace = CellblockWorkspace(sandbox)
        result = await agent.run("Add 6 and 7 with a program.", model=model, workspace=workspace)
        print(
            [
                part.content.split()[-1]
                for message in result.all_messages()
                for part in message.parts
                if part.part_kind == "tool-return"
            ]
        )
        print(result.output, await sandbox.files.read("task/add.py"))


asyncio.run(main())
