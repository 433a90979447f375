"""What is sent into containers: the cell server starts of compiled modules where they fit, else of their source."""

from __future__ import annotations

import asyncio
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cellblock.backends.base import open_server
from cellblock.backends.container import ExecLink
from cellblock.backends.host import plain_spec
from cellblock.backends.module_bundle import MARK_BYTES, shipment
from cellblock.backends.transport import start_process
from cellblock.limits import Limits
from cellblock.runtime import bootstrap

OTHER = b"\0else"


@pytest.mark.parametrize(("mark", "kind"), [(b"\0" + MAGIC_NUMBER, b"C"), (OTHER, b"S")])
def test_a_server_starts_of_what_is_sent(mark: bytes, kind: bytes, tmp_path: Path) -> None:
    async def started() -> bytes:
        link = start_process(bootstrap.CONTAINER, None, None)
        said = await asyncio.get_running_loop().sock_recv(link._socket, MARK_BYTES)
        assert shipment(mark)[:1] == kind
        link.send(shipment(mark))
        connection = await open_server(link, plain_spec(str(tmp_path), {}, Limits(), None, []))
        await connection.close()
        return said

    assert asyncio.run(started()) == b"\0" + MAGIC_NUMBER


class Stream:
    """An exec's stream as far as a link uses it: it says what it is told to, and remembers what is written."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[SimpleNamespace] = asyncio.Queue()
        self.written: list[bytes] = []

    def say(self, data: bytes) -> None:
        self.said.put_nowait(SimpleNamespace(stream=1, data=data))

    async def read_out(self) -> SimpleNamespace:
        return await self.said.get()

    async def write_in(self, data: bytes) -> None:
        self.written.append(data)


def test_nothing_is_sent_to_what_may_be_no_python() -> None:
    async def main() -> None:
        stream, mark = Stream(), b"\0" + MAGIC_NUMBER
        link = ExecLink(cast("Any", None), cast("Any", stream))
        link.begin(lambda _data: None, lambda: None)
        link.send(b"first")
        for part in (b"an engine's own words", mark[:2]):
            stream.say(part)
            await asyncio.sleep(0.05)
            assert stream.written == []
        stream.say(mark[2:])
        while not stream.written:
            await asyncio.sleep(0)
        link.let_go()
        assert stream.written == [shipment(mark) + b"first"]

    asyncio.run(main())
