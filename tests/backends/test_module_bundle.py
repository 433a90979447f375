"""The module bundle: the server in a container starts from compiled modules or from source."""

from __future__ import annotations

import asyncio
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cellblock.backends.connection import open_server
from cellblock.backends.container import ExecTransport
from cellblock.backends.host import process_spec
from cellblock.backends.module_bundle import MAGIC_BYTES, module_bundle
from cellblock.backends.server_process import ServerProcess
from cellblock.backends.transport import ProcessTransport
from cellblock.limits import Limits
from cellblock.runtime import bootstrap
from cellblock.runtime.spec import ConfinementSpec

OTHER_MAGIC = b"\0else"


@pytest.mark.parametrize(("magic", "kind"), [(b"\0" + MAGIC_NUMBER, b"C"), (OTHER_MAGIC, b"S")])
def test_server_starts_from_the_bundle(magic: bytes, kind: bytes, tmp_path: Path) -> None:
    async def start() -> bytes:
        spec = process_spec(str(tmp_path), [], ConfinementSpec(), Limits.unlimited(), None, [])
        transport = ProcessTransport(ServerProcess(bootstrap.CONTAINER))
        received = await asyncio.get_running_loop().sock_recv(transport._socket, MAGIC_BYTES)
        assert module_bundle(magic)[:1] == kind
        transport.send(module_bundle(magic))
        connection = await open_server(transport, spec)
        await connection.close()
        return received

    assert asyncio.run(start()) == b"\0" + MAGIC_NUMBER


class FakeExecStream:
    """The part of an exec's stream that a transport uses. It records what is written."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[SimpleNamespace] = asyncio.Queue()
        self.written: list[bytes] = []

    def add_output(self, data: bytes) -> None:
        self.output.put_nowait(SimpleNamespace(stream=1, data=data))

    async def read_out(self) -> SimpleNamespace:
        return await self.output.get()

    async def write_in(self, data: bytes) -> None:
        self.written.append(data)


async def test_nothing_is_sent_before_the_magic_number() -> None:
    stream, magic = FakeExecStream(), b"\0" + MAGIC_NUMBER
    transport = ExecTransport(cast("Any", None), cast("Any", stream))
    transport.start(lambda _data: None, lambda: None)
    transport.send(b"first")
    for part in (b"a message of the engine", magic[:2]):
        stream.add_output(part)
        while not stream.output.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stream.written == []
    stream.add_output(magic[2:])
    while not stream.written:
        await asyncio.sleep(0)
    transport.detach()
    assert stream.written == [module_bundle(magic) + b"first"]
