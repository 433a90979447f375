"""AutoGen's executor: packages, functions, results, errors, files, and state."""

import asyncio
import sys
import tempfile
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.azure import ACADynamicSessionsCodeExecutor

URL, KEY = sys.argv[1:]


class Credential:
    def get_token(self, *scopes, **options):
        from azure.core.credentials import AccessToken

        return AccessToken(KEY, 4_000_000_000)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main():
    folder = Path(tempfile.mkdtemp())
    executor = ACADynamicSessionsCodeExecutor(
        pool_management_endpoint=URL, credential=Credential(), work_dir=folder, functions=[add]
    )

    async def run(code):
        blocks = [CodeBlock(code=code, language="python")]
        return await executor.execute_code_blocks(blocks, CancellationToken())

    for code, output in (("x = 41\nprint('hi')", "hi\n"), ("x + 1", "42"), ("add(2, 3)", "5")):
        result = await run(code)
        assert (result.exit_code, result.output) == (0, output)
    result = await run("1/0")
    assert (result.exit_code, "ZeroDivisionError" in result.output) == (1, True)
    (folder / "two words.txt").write_text("content")
    await executor.upload_files(["two words.txt"], CancellationToken())
    assert await executor.get_file_list(CancellationToken()) == ["two words.txt"]
    result = await run("open('out.txt', 'w').write(open('two words.txt').read().upper())")
    assert result.exit_code == 0
    await executor.download_files(["out.txt"], CancellationToken())
    assert (folder / "out.txt").read_text() == "CONTENT"
    assert len(await executor.get_available_packages(CancellationToken())) > 0


asyncio.run(main())
