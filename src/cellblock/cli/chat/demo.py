"""The recorded conversation of `cellblock chat --demo`. Its code really runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from ...models.cassette import CassetteChatCompletionClient
from ...models.client import ChatCompletionClient, with_parameters_of
from ...models.messages import CreateResult

DEMO_TASK = (
    "Throw two dice 100000 times and compare the sums with theory. "
    "Then draw the Mandelbrot set, with the standard library alone."
)
CASSETTE = Path(__file__).with_name("demo.json")
# What differs from machine to machine: the system message, which names the executor's features, and
# the traceback, which differs from one version of Python to the next.
NORMALIZE = (
    (r"(?s)\AYou solve the user's tasks.*", "SYSTEM MESSAGE"),
    (r"(?s)Its output was:\n.*?(?=TypeError: )", "Its output was: TRACEBACK "),
)
_PIECE_SECONDS = 0.02


def make_demo_client(*, is_slow: bool) -> ChatCompletionClient:
    """Return the client. If `is_slow`, it answers as slowly as a model does."""
    return _DemoClient(CASSETTE, normalize=NORMALIZE, is_slow=is_slow)


class _DemoClient(CassetteChatCompletionClient):
    def __init__(self, path: Path, *, normalize: Sequence[tuple[str, str]], is_slow: bool) -> None:
        super().__init__(path, normalize=normalize)
        self._is_slow = is_slow

    @with_parameters_of(ChatCompletionClient.create)
    async def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the recorded pieces in the pace of a model."""
        answer = super().create_stream(*arguments, **options)
        async with aclosing(answer):
            async for item in answer:
                yield item
                if self._is_slow:
                    await asyncio.sleep(_PIECE_SECONDS)
