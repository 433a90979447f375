"""Semantic Kernel's tool, over TLS."""

import asyncio
import sys
import tempfile
from pathlib import Path

from semantic_kernel.core_plugins.sessions_python_tool.sessions_python_plugin import (
    SessionsPythonTool,
)

URL, KEY = sys.argv[1:]


async def main():
    async def token():
        return KEY

    folder = Path(tempfile.mkdtemp())
    (folder / "a.txt").write_text("content")
    tool = SessionsPythonTool(
        pool_management_endpoint=URL,
        auth_callback=token,
        enable_dangerous_file_uploads=True,
        allowed_upload_directories={str(folder)},
        allowed_download_directories={str(folder)},
    )
    shown = await tool.execute_code("x = 41\nprint('hi')\nx + 1")
    assert shown.split() == "Status: Success Result: 42 Stdout: hi Stderr:".split()
    uploaded = await tool.upload_file(
        local_file_path=str(folder / "a.txt"), remote_file_path="b.txt"
    )
    assert (uploaded.filename, uploaded.size_in_bytes) == ("b.txt", 7)
    assert [each.filename for each in await tool.list_files()] == ["b.txt"]
    shown = await tool.execute_code("open('/mnt/data/b.txt').read()")
    assert shown.split() == "Status: Success Result: content Stdout: Stderr:".split()
    assert (await tool.download_file(remote_file_name="b.txt")).read() == b"content"
    failed = await tool.execute_code("1/0")
    assert "Failure" in failed
    assert "ZeroDivisionError" in failed


asyncio.run(main())
