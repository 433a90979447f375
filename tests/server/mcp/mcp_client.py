"""Connect the official client to `cellblock mcp`: both transports, both modes of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

COMMAND = ("-m", "cellblock", "mcp")
SECONDS = 50


@dataclass(frozen=True)
class Connection:
    """How a test talks to the server."""

    transport: Literal["stdio", "http"]
    mode: Literal["auto", "legacy"]

    def __str__(self) -> str:
        return f"{self.transport}-{self.mode}"


STDIO = Connection("stdio", "auto")
CONNECTIONS = [
    Connection(transport, mode) for transport in ("stdio", "http") for mode in ("auto", "legacy")
]


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(limited())


@contextlib.asynccontextmanager
async def connect(connection: Connection, *options: str, **settings: Any) -> AsyncGenerator[Client]:
    """Start `cellblock mcp` with `options`, and yield a client with `settings`."""
    if connection.transport == "stdio":
        server: Any = StdioServerParameters(command=sys.executable, args=[*COMMAND, *options])
        async with Client(server, mode=connection.mode, **settings) as client:
            yield client
        return
    async with (
        serve_http(*options) as url,
        Client(url, mode=connection.mode, **settings) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def serve_http(*options: str) -> AsyncGenerator[str]:
    """Start `cellblock mcp --http` on a free port, and yield its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *COMMAND, "--http", "0", *options), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        seen = list[str]()
        while line := (await process.stderr.readline()).decode():
            seen.append(line)
            if found := re.search(r"serving on (\S+)", line):
                yield found[1]
                return
        raise AssertionError(f"The server did not start: {seen}")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def run_code(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    """Run code and return the structured output."""
    result = await client.call_tool("run_code", {"code": code, **arguments})
    return data_of(result)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that succeeds, and return its structured output."""
    result = await client.call_tool(tool, arguments)
    return data_of(result)


async def call_refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that fails, and return its message."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return text_of(result)


def data_of(result: CallToolResult) -> dict[str, Any]:
    """Return the structured output of a call that succeeded."""
    assert not result.is_error, text_of(result)
    return cast("dict[str, Any]", result.structured_content)


def text_of(result: CallToolResult) -> str:
    """Return the text that a model is shown."""
    return "\n".join(block.text for block in result.content if block.type == "text")


@contextlib.asynccontextmanager
async def start_raw(folder: Path, *options: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start the command with pipes; its temporary files are in `folder`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *COMMAND, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
        limit=1 << 20,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
