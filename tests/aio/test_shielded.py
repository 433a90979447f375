"""Work that its token ends if the task that awaits it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from cellblock.aio import shielded
from cellblock.cancellation import CancellationToken


@pytest.mark.parametrize("heeds_token", [True, False])
def test_work_ends_by_its_token_or_is_cancelled(
    heeds_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shielded, "ABANDONED_GRACE", 10.0 if heeds_token else 0.01)
    ended = list[str]()

    async def work(token: CancellationToken) -> None:
        cancelled = asyncio.Event()
        token.add_callback(cancelled.set)
        try:
            await (cancelled if heeds_token else asyncio.Event()).wait()
            await asyncio.sleep(0)
            ended.append("by its token")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        token = CancellationToken()
        task = asyncio.create_task(shielded.end_by_token(work(token), token))
        await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert token.is_cancelled()

    asyncio.run(main())
    assert ended == ["by its token" if heeds_token else "cancelled"]
