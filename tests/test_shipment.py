"""What is sent into containers: the cell server starts of compiled modules where they fit, else of their source."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from cellblock.cell import boot
from cellblock.errors import PlaceError
from cellblock.limits import Limits
from cellblock.places.base import open_server
from cellblock.places.host import plain_spec
from cellblock.places.link import start_process
from cellblock.places.shipment import shipment

NOTHING = zlib.compress(b"{}")


def parts() -> list[bytes]:
    found, rest = list[bytes](), shipment()
    while rest:
        size = int.from_bytes(rest[:4], "big")
        found.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    return found


def start_of(mark: bytes, compiled: bytes, sources: bytes, folder: Path) -> str:
    """Start a cell server of these; give the version of its Python. Raises `PlaceError`."""

    async def started() -> str:
        link = start_process(boot.CONTAINER, None, None)
        link.send(b"".join(len(part).to_bytes(4, "big") + part for part in (mark, compiled, sources)))
        connection = await open_server(link, plain_spec(str(folder), {}, Limits(), None, []))
        await connection.close()
        return str(connection.news["python"])

    return asyncio.run(started())


def test_the_same_python_needs_no_source(tmp_path: Path) -> None:
    mark, compiled, _ = parts()
    assert start_of(mark, compiled, NOTHING, tmp_path)


def test_another_python_takes_the_source(tmp_path: Path) -> None:
    _, _, sources = parts()
    assert start_of(b"else", b"no code of this Python", sources, tmp_path)


def test_it_is_these_modules_that_it_starts_of(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match="cellblock"):
        start_of(b"else", b"", NOTHING, tmp_path)
