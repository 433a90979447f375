"""The event loop of the calling task, which must be one of asyncio."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raise `RuntimeError` under trio and where none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "Cellblock needs a running event loop of asyncio. Under trio, call "
            "`await trio.to_thread.run_sync(asyncio.run, main())`, where main uses Cellblock."
        ) from None
