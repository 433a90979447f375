"""Use a shell of Microsoft's Agent Framework as it does, and print what comes back."""

import asyncio

from agent_framework_tools.shell import ShellEnvironmentProvider

from cellblock import Sandbox
from cellblock.integrations.agent_framework import CellblockShellExecutor


async def main():
    async with Sandbox() as sandbox, CellblockShellExecutor(sandbox) as shell:
        await shell.run("cd /tmp; export A=5; later() { echo later; }")
        for command, options in (
            ("pwd; echo $A >&2; later; false", {}),
            ("echo partial; sleep 100", {"timeout": 0.5}),
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
