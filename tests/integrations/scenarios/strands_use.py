"""Use a sandbox for Strands as it does, and print what comes back."""

import asyncio

from strands.sandbox import StreamChunk
from strands.sandbox.errors import SandboxTimeoutError

from cellblock import Sandbox, sync
from cellblock.integrations.strands import CellblockStrandsSandbox


async def main():
    async with Sandbox() as box:
        sandbox = CellblockStrandsSandbox(box)
        command = r"printf '\303'; sleep 0.1; printf '\244'; printf $A'\377' >&2; pwd; kill -9 $$"
        chunks, result = [], None
        async for part in sandbox.execute_streaming(command, env={"A": "err"}, cwd="/tmp"):
            chunks, result = (
                ([*chunks, part], result) if isinstance(part, StreamChunk) else (chunks, part)
            )
        texts = {"stdout": "", "stderr": ""}
        for chunk in chunks:
            texts[chunk.stream_type] += chunk.data
        print(texts, result.exit_code, result.stdout == texts["stdout"])
        for seconds in (2, 0.0):
            try:
                await sandbox.execute("echo partial; sleep 100", timeout=seconds)
            except SandboxTimeoutError as error:
                print(error, repr(error.stdout if seconds else ""))
        print((await sandbox.execute_code("print(6 * 7)", "python3")).stdout)
        await sandbox.write_file("a/b", bytes(range(256)))
        print(await sandbox.read_file("a/b") == bytes(range(256)))
        print(await sandbox.list_files("a"))
        for failing in (
            sandbox.read_file("none"),
            sandbox.remove_file("none"),
            sandbox.list_files("none"),
            sandbox.list_files("a/b"),
        ):
            try:
                await failing
            except FileNotFoundError as error:
                print(type(error).__name__)
        try:
            await sandbox.remove_file("a")
        except IsADirectoryError as error:
            print(error, await sandbox.list_files("a"))
        await sandbox.remove_file("a/b")
        print(await sandbox.list_files("a"))
    try:
        CellblockStrandsSandbox(sync.Sandbox())
    except ValueError as error:
        print(str(error)[:40])


asyncio.run(main())
