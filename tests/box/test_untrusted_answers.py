"""What carries out orders in a box can be taken over by its commands, and answer anything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
from collections.abc import AsyncGenerator, AsyncIterable

import pytest

from cellblock import SandboxSessionCodeExecutor
from cellblock.box.files import Files
from cellblock.box.life import BoxLife, BoxLink, check_box_answer
from cellblock.runtime import protocol
from cellblock.runtime.box_orders import BoxAnswer, BoxOrder

PIECE = bytes(100_000)


class EndlessLink(BoxLink):
    """A box that sends contents for ever, whatever it is asked for."""

    async def frames(
        self, order: BoxOrder, data: AsyncIterable[bytes] | None = None
    ) -> AsyncGenerator[protocol.Frame, None]:
        """See `BoxLink`."""
        while True:
            yield protocol.Frame(protocol.VALUE_CHUNK, 1, PIECE)


class EndlessBox(BoxLife):
    """The life of such a box."""

    def __init__(self) -> None:
        super().__init__(SandboxSessionCodeExecutor(), None)

    @contextlib.asynccontextmanager
    async def use(self, *, is_counted: bool = True) -> AsyncGenerator[BoxLink]:
        """See `BoxLife`."""
        yield EndlessLink(None, 1, None)  # pyright: ignore[reportArgumentType] - it is not used


def test_no_more_is_received_than_was_asked_for() -> None:
    async def main() -> None:
        files, target = Files(EndlessBox()), io.BytesIO()
        for work in (files.read("a", limit_bytes=450_000), files.stat("a"), files.list("a")):
            with pytest.raises(OSError, match="'a'") as caught:
                await work
            assert caught.value.errno == errno.EFBIG
        with pytest.raises(OSError, match="'a'") as caught:
            await files.download("a", target, limit_bytes=4_500_000)
        assert caught.value.errno == errno.EFBIG
        assert len(target.getvalue()) <= 4_500_000

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_list_that_is_none_is_an_error() -> None:
    class Link(BoxLink):
        async def frames(
            self, order: BoxOrder, data: AsyncIterable[bytes] | None = None
        ) -> AsyncGenerator[protocol.Frame, None]:
            yield protocol.Frame(protocol.VALUE_CHUNK, 1, b'["BoxAnswer", 5]')
            yield protocol.Frame(protocol.BOX_REPLY, 1, b"{}")

    class LyingBox(EndlessBox):
        @contextlib.asynccontextmanager
        async def use(self, *, is_counted: bool = True) -> AsyncGenerator[BoxLink]:
            yield Link(None, 1, None)  # pyright: ignore[reportArgumentType] - it is not used

    with pytest.raises(OSError, match="invalid list: 'a'"):
        asyncio.run(Files(LyingBox()).list("a"))


def test_an_unknown_errno_is_an_input_output_error() -> None:
    for number in (1 << 31, 1 << 70, -1, 0, 4095):
        with pytest.raises(OSError, match="'a'") as caught:
            check_box_answer(BoxAnswer(errno=number), "a")
        assert caught.value.errno == errno.EIO
