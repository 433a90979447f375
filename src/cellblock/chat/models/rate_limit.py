"""RateLimit: how many requests a second an entry of `config_list` allows."""

from __future__ import annotations

import asyncio
import time

from ..steps import Step, Steps


class RateLimit:
    """Waits between requests: `api_rate_limit` of them a second."""

    def __init__(self, requests_per_second: float) -> None:
        if not requests_per_second > 0:
            raise ValueError(f"api_rate_limit is {requests_per_second!r}. Pass a positive number.")
        self._pause = 1 / requests_per_second
        self._next = 0.0

    def wait_steps(self) -> Steps[None]:
        """Wait until the next request may be sent."""
        now = time.monotonic()
        pause = max(0.0, self._next - now)
        self._next = now + pause + self._pause
        if pause:
            yield from Step(time.sleep, asyncio.sleep)(pause)
