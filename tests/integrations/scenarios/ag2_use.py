"""Use a sandbox of AG2 as it does, and print what comes back."""

import asyncio
import copy
from pathlib import PurePosixPath

from ag2.tools import SandboxCodeTool, SandboxShellTool

from cellblock import Sandbox
from cellblock.integrations.ag2 import CellblockAg2Sandbox


async def main():
    async with Sandbox() as box:
        sandbox = copy.deepcopy(CellblockAg2Sandbox(box))
        print(sandbox.workdir, sandbox.host_workdir)
        for argv, options in (
            (["sh", "-c", "echo out; echo $A >&2; exit 3"], {"env": {"A": "err"}}),
            (["none"], {}),
            (["/etc/passwd"], {}),
            (["sh", "-c", "echo partial; sleep 100"], {"timeout": 2}),
            (["printf", r"\377"], {}),
        ):
            result = await sandbox.exec(argv, **options)
            print(result.exit_code, result.output.splitlines()[:2])
        await sandbox.put_file(PurePosixPath("a/b"), b"text")
        print((await sandbox.exec(["cat", "a/b"])).output)
        await sandbox.put_file(PurePosixPath("folder/file"), b"text")
        for path in ("a/b", "a/b", "/a", "../a", "folder"):
            try:
                await sandbox.remove_file(PurePosixPath(path))
            except (ValueError, IsADirectoryError) as error:
                print(error)
        await box.files.stat("folder/file")
        print((await SandboxCodeTool(sandbox).environment.run("print(6 * 7)", "python")).output)
        print(SandboxShellTool(sandbox).name)


asyncio.run(main())
