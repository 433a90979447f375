"""What is sent into containers: the cell server starts of compiled modules where they fit, else of their source."""

from __future__ import annotations

import asyncio
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from cellblock.cell import boot
from cellblock.limits import Limits
from cellblock.places.base import open_server
from cellblock.places.host import plain_spec
from cellblock.places.link import start_process
from cellblock.places.shipment import MARK_BYTES, shipment

OTHER = b"\0else"


@pytest.mark.parametrize(("mark", "kind"), [(b"\0" + MAGIC_NUMBER, b"C"), (OTHER, b"S")])
def test_a_server_starts_of_what_is_sent(mark: bytes, kind: bytes, tmp_path: Path) -> None:
    async def started() -> bytes:
        link = start_process(boot.CONTAINER, None, None)
        said = await asyncio.get_running_loop().sock_recv(link._socket, MARK_BYTES)
        assert shipment(mark)[:1] == kind
        link.send(shipment(mark))
        connection = await open_server(link, plain_spec(str(tmp_path), {}, Limits(), None, []))
        await connection.close()
        return said

    assert asyncio.run(started()) == b"\0" + MAGIC_NUMBER


def test_what_is_sent_differs() -> None:
    assert shipment(b"\0" + MAGIC_NUMBER) != shipment(OTHER)
