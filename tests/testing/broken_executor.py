"""An executor that breaks the contract, for the tests of the conformance suite itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from cellblock import CodeBlock, Ended, Event, Started
from cellblock.cancellation import Token
from cellblock.executors.base import CodeExecutor


class BrokenExecutor(CodeExecutor):
    """Reports success without running anything."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    async def _open(self) -> None:
        pass

    async def _close(self, *, restarting: bool) -> None:
        pass

    async def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        yield Started(number, block.language)
        yield Ended(number, 0, "ok")
