"""StdinChannel: ask the client for a line, and wait for its answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from zmq.eventloop.zmqstream import ZMQStream

from ..executors.session.settings import InputPrompt

_END_OF_FILE = "\x04"  # what clients send for Ctrl-D


class StdinChannel:
    """Ask over `socket`, on the loop that creates this object. `session` signs the messages.

    `before_question` is called before each question.
    """

    def __init__(
        self, socket: Any, session: Any, before_question: Callable[[InputPrompt], Awaitable[None]]
    ) -> None:
        self._loop, self._session = asyncio.get_running_loop(), session
        self._before_question = before_question
        self._stream: Any = ZMQStream(socket)
        self._stream.on_recv(self._on_message, copy=False)
        self._answer: asyncio.Future[str] | None = None

    async def ask(self, prompt: InputPrompt, parent: Any, identity: Any) -> str:
        """Return the answer to `prompt`. Can be called on any loop. Raise `EOFError` on Ctrl-D."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._ask(prompt, parent, identity), self._loop)
        )

    async def _ask(self, prompt: InputPrompt, parent: Any, identity: Any) -> str:
        await self._before_question(prompt)
        self._answer = self._loop.create_future()
        content = {"prompt": str(prompt), "password": prompt.hidden}
        self._session.send(self._stream, "input_request", content, parent, ident=identity)
        try:
            answer = await self._answer
        finally:
            self._answer = None
        if answer == _END_OF_FILE:
            raise EOFError
        return answer

    def _on_message(self, frames: Any) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # not a valid, signed message
            _, parts = self._session.feed_identities(frames, copy=False)
            message = self._session.deserialize(parts, copy=False)
            value = str(message["content"]["value"])
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(value)
