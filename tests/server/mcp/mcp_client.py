"""Connect the official client to `cellblock mcp`: both transports, both modes of the protocol.

The import of the SDK takes seconds, so it happens when a test connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.command_server import CommandProcess
from tests.server.serving import Server

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult

# What a client sends first.
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"accept": "application/json, text/event-stream"}


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


@dataclass
class User:
    """Answers the questions of a server with "yes", "no" or "decline", and remembers them."""

    answers: list[str] = field(default_factory=list[str])
    questions: list[str] = field(default_factory=list[str])

    async def __call__(self, _context: Any, question: ElicitRequestParams) -> ElicitResult:
        """Return the next answer."""
        from mcp.types import ElicitResult

        self.questions.append(question.message)
        answer = self.answers.pop(0)
        if answer == "decline":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"run": answer == "yes"})


@dataclass
class Tools:
    """A connected client, for tests that are no coroutines. `session` is that of its calls."""

    portal: BlockingPortal
    client: Client
    user: User = field(default_factory=User)
    session: str = ""
    _used: set[str] = field(default_factory=set[str])

    def start(
        self, tool: str, callback: Callable[..., Any] | None = None, **arguments: Any
    ) -> Future[CallToolResult]:
        """Call a tool, and do not wait. `callback` gets its progress."""
        if self.session:
            arguments = {"session_id": self.session, **arguments}
            self._used |= {arguments["session_id"], arguments.get("new_session_id", self.session)}

        async def call() -> CallToolResult:
            return await self.client.call_tool(tool, arguments, progress_callback=callback)

        return self.portal.start_task_soon(call)

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        """Call a tool."""
        return self.start(tool, **arguments).result()

    def data(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that succeeds, and return its structured output."""
        return data_of(self.call(tool, **arguments))

    def refusal(self, tool: str, **arguments: Any) -> str:
        """Call a tool that fails, and return its message."""
        result = self.call(tool, **arguments)
        assert result.is_error, result
        return text_of(result)

    def run(self, code: str, **arguments: Any) -> dict[str, Any]:
        """Run code, and return the structured output."""
        return self.data("run_code", code=code, **arguments)

    def read(self, uri: str) -> Any:
        """Return the content of a resource."""
        return self.portal.call(self.client.read_resource, uri).contents[0]

    def uris(self) -> list[str]:
        """Return the addresses of all resources."""
        return [each.uri for each in self.portal.call(self.client.list_resources).resources]

    def end(self) -> None:
        """End the sessions that the calls have named."""
        for session in self._used:
            self.call("reset_session", session_id=session)


@contextlib.contextmanager
def using(connection: Connection, *options: str, user: User | None = None) -> Generator[Tools]:
    """Start `cellblock mcp` with `options`, and yield its tools. No user means nobody to ask."""
    with tools_of(connect(connection, *options, elicitation_callback=user)) as tools:
        tools.user = user or tools.user
        yield tools


@contextlib.contextmanager
def using_door(server: Server, key: str) -> Generator[Tools]:
    """Yield the tools of `cellblock serve`."""
    with tools_of(_connect_to_door(f"{server.url}/mcp", key)) as tools:
        yield tools


@contextlib.contextmanager
def tools_of(connecting: AbstractAsyncContextManager[Client]) -> Generator[Tools]:
    """Yield the tools of a client that connects."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(connecting) as client,
    ):
        yield Tools(portal, client)


@contextlib.asynccontextmanager
async def _connect_to_door(url: str, key: str) -> AsyncGenerator[Client]:
    from httpx2 import AsyncClient
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def connect(connection: Connection, *options: str, **settings: Any) -> AsyncGenerator[Client]:
    """Start `cellblock mcp` with `options`, and yield a client with `settings`."""
    from mcp import Client

    async with contextlib.AsyncExitStack() as stack:
        server: Any
        if connection.transport == "stdio":
            server = _pipes(*options)
        else:
            server = stack.enter_context(serving_http(*options))
        yield await stack.enter_async_context(Client(server, mode=connection.mode, **settings))


@contextlib.asynccontextmanager
async def _pipes(*options: str) -> AsyncGenerator[tuple[Any, Any]]:
    """Start the command, and yield a stream of its messages and one of those that it gets."""
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

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


@contextlib.contextmanager
def serving_http(*options: str) -> Generator[str]:
    """Start `cellblock mcp --http` on a free port, and yield its URL."""
    arguments = ["mcp", "--http", "0", *options]
    with CommandProcess[str](arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "cellblock: starting\n"
            line = process.stderr.readline()
            assert "serving on" in line
            yield line.split()[-1]
        finally:
            process.terminate()
            process.communicate()


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine."""
    asyncio.run(work)


async def run_code(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    """Run code and return the structured output."""
    return data_of(await client.call_tool("run_code", {"code": code, **arguments}))


def data_of(result: CallToolResult) -> dict[str, Any]:
    """Return the structured output of a call that succeeded."""
    assert not result.is_error, text_of(result)
    return cast("dict[str, Any]", result.structured_content)


def text_of(result: CallToolResult) -> str:
    """Return the text that a model is shown."""
    return "\n".join(block.text for block in result.content if block.type == "text")
