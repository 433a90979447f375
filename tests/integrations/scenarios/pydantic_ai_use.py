"""Use a workspace for Pydantic AI as it does, and print what comes back."""

import asyncio

from pydantic_ai.workspaces import (
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from cellblock import Sandbox, sync
from cellblock.integrations.pydantic_ai import CellblockWorkspace


async def main():
    async with Sandbox(timeout=2) as sandbox:
        workspace = CellblockWorkspace(sandbox)
        print((await workspace.run(["/etc/passwd"])).exit_code)
        for command, options in (
            ("echo out; echo err >&2; sleep 100", {}),
            ("echo; sleep 100", {"timeout": 1}),
            ("head -c 11000000 /dev/zero", {"timeout": 60}),
            ("true", {"timeout": 0}),
        ):
            try:
                await workspace.run(command, shell=True, **options)
            except (ValueError, WorkspaceTimeoutError, WorkspaceOutputLimitError) as error:
                print(type(error).__name__, len(getattr(error, "stdout", "")))
    nothing = CellblockWorkspace.attach(WorkspaceRef(provider="cellblock", id="nothing"))
    for gone in (workspace, nothing):
        try:
            await gone.exists("/")
        except WorkspaceUnavailableError as error:
            print(error)
    try:
        CellblockWorkspace(sync.Sandbox())
    except ValueError as error:
        print(str(error)[:40])


asyncio.run(main())
