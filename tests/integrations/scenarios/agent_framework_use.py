"""Use a shell of Microsoft's Agent Framework as it does, and print what comes back."""

import asyncio

from agent_framework import tool
from agent_framework_tools.shell import ShellEnvironmentProvider

from cellblock import Sandbox
from cellblock.integrations.agent_framework import CellblockCodeActProvider, CellblockShellExecutor


@tool(approval_mode="always_require")
async def rate(currency: str, day: int = 1) -> dict[str, object]:
    """Return a rate."""
    return {"loop": asyncio.get_running_loop() is LOOPS[0], "rate": 1.25 * day}


LOOPS = []


class Context:
    def extend_instructions(self, source_id, text):
        print(source_id, text.splitlines()[-1])

    def extend_tools(self, source_id, tools):
        print([(each.name, each.approval_mode) for each in tools])


async def run_code():
    LOOPS.append(asyncio.get_running_loop())
    provider = CellblockCodeActProvider(tools=[rate], timeout=20)
    await provider.before_run(agent=None, session=None, context=Context(), state={})
    for code in (
        "x = rate('USD', day=2)\nprint(x)",
        "print(x['rate'])",
        "rate('USD', 1, 2)",
        "rate(day='no number')",
        "input()",
    ):
        lines = (await provider.execute_code(code)).splitlines()
        errors = [line.split(": ")[1] for line in lines if line.startswith("RuntimeError: ")]
        print(*errors or lines[-1:])
    await provider.close()


async def main():
    async with Sandbox() as sandbox, CellblockShellExecutor(sandbox) as shell:
        await shell.run("cd /tmp; export A=5; later() { echo later; }")
        for command, options in (
            ("pwd; echo $A >&2; later; false", {}),
            ("echo partial; sleep 100", {"timeout": 2}),
            ("pwd", {}),
        ):
            done = await shell.run(command, **options)
            print(repr(done.stdout), repr(done.stderr), done.exit_code, done.timed_out)
        snapshot = await ShellEnvironmentProvider(shell).refresh()
        print(snapshot.working_directory, snapshot.tool_versions["python"] is not None)
        await shell.close()
        await shell.close()
        print(repr((await shell.run("pwd; echo $A")).stdout))


asyncio.run(main())
asyncio.run(run_code())
