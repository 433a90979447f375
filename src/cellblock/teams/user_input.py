"""UserInputManager: ask the user only after the console has printed what came before."""

from __future__ import annotations

import asyncio

from ..agents.user_proxy_agent import (
    AsyncInputFunc,
    InputFuncType,
    UserProxyAgent,
    call_input_func,
)
from ..cancellation import CancellationToken


class UserInputManager:
    """Connect the `input_func` of `UserProxyAgent`s with a `Console`.

    Pass `get_wrapped_callback()` to the agents, and this object to the `Console`: then `callback`
    is called after the console has printed everything up to the request.
    """

    def __init__(self, callback: InputFuncType) -> None:
        self._callback = callback
        # Request -> set when the console has reached it.
        self._reached: dict[str, asyncio.Event] = {}

    def get_wrapped_callback(self) -> AsyncInputFunc:
        """Return the `input_func` for the agents."""

        async def wait_and_call(prompt: str, cancellation_token: CancellationToken | None) -> str:
            request_id = UserProxyAgent.InputRequestContext.request_id()
            reached = self._reached.setdefault(request_id, asyncio.Event())
            try:
                await reached.wait()
            finally:
                del self._reached[request_id]
            return await call_input_func(self._callback, prompt, cancellation_token)

        return wait_and_call

    def notify_event_received(self, request_id: str) -> None:
        """Let the callback of this `UserInputRequestedEvent` be called."""
        self._reached.setdefault(request_id, asyncio.Event()).set()
