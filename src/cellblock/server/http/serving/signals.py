"""Handle the signals that stop a server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_signals(stop: Callable[[int], object]) -> Generator[None]:
    """Call `stop` with the number of each SIGINT and SIGTERM during the context.

    Servers use it instead of the context of uvicorn, which raises the signals again at its end:
    sessions have to be ended after that.
    """
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
