"""Connect the official client to `cellblock mcp`: both transports, both modes of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, jsonrpc_message_adapter

from tests.command_server import CommandProcess

COMMAND = ("-m", "cellblock", "mcp")


@dataclass(frozen=True)
class Connection:
    """How a test talks to the server. The SDK itself starts a "program", which takes longer."""

    transport: Literal["stdio", "http", "program"]
    mode: Literal["auto", "legacy"]

    def __str__(self) -> str:
        return f"{self.transport}-{self.mode}"


STDIO = Connection("stdio", "auto")
CONNECTIONS = [
    Connection(transport, mode) for transport in ("stdio", "http") for mode in ("auto", "legacy")
]


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine."""
    asyncio.run(work)


@contextlib.asynccontextmanager
async def connect(connection: Connection, *options: str, **settings: Any) -> AsyncGenerator[Client]:
    """Start `cellblock mcp` with `options`, and yield a client with `settings`."""
    async with contextlib.AsyncExitStack() as stack:
        server: Any
        if connection.transport == "program":
            server = StdioServerParameters(command=sys.executable, args=[*COMMAND, *options])
        elif connection.transport == "stdio":
            server = _pipes(*options)
        else:
            server = await stack.enter_async_context(serve_http(*options))
        yield await stack.enter_async_context(Client(server, mode=connection.mode, **settings))


@contextlib.asynccontextmanager
async def _pipes(*options: str) -> AsyncGenerator[tuple[Any, Any]]:
    """Start the command, and yield a stream of its messages and one of those that it gets."""
    received, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    process = CommandProcess[bytes](
        ["mcp", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=get_default_environment(),
    )

    async def receive(stdout: IO[bytes]) -> None:
        async with received:
            while line := await asyncio.to_thread(stdout.readline):
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await received.send(SessionMessage(message))

    async def send(stdin: IO[bytes]) -> None:
        async with sent:
            async for message in sent:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await asyncio.to_thread(stdin.write, f"{text}\n".encode())
                await asyncio.to_thread(stdin.flush)

    with process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with anyio.create_task_group() as tasks, messages:
                tasks.start_soon(receive, stdout)
                tasks.start_soon(send, stdin)
                async with outgoing:
                    yield messages, outgoing
                stdin.close()
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def serve_http(*options: str) -> AsyncGenerator[str]:
    """Start `cellblock mcp --http` on a free port, and yield its URL."""
    arguments = ["mcp", "--http", "0", *options]
    with CommandProcess[str](arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = [await asyncio.to_thread(process.stderr.readline) for _ in range(2)]
            assert lines[0] == "cellblock: starting\n"
            assert "serving on" in lines[1], lines
            yield lines[1].split()[-1]
        finally:
            process.terminate()
            await asyncio.to_thread(process.communicate)


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
