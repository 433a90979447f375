"""UserProxyAgent: a person as an agent."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from ..aio.running_loop import running_loop
from ..cancellation import CancellationToken
from ..errors import AgentError, ComponentError
from .base import BaseChatAgent, Response
from .cancellable import cancelled_by
from .messages import (
    AgentMessage,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    UserInputRequestedEvent,
)

SyncInputFunc = Callable[[str], str]
AsyncInputFunc = Callable[[str, CancellationToken | None], Awaitable[str]]
InputFuncType = SyncInputFunc | AsyncInputFunc

_request_id: contextvars.ContextVar[str] = contextvars.ContextVar("_request_id")


class UserProxyAgent(BaseChatAgent):
    """An agent that asks a person for its answer.

    `input_func(prompt)` returns the answer; it runs in a thread. It can also be async, and is
    called with the cancellation token as well. None reads a line from the terminal. A cancelled
    token ends the wait, but not the thread.

    The answer to a `HandoffMessage` is a `HandoffMessage` back.
    """

    class InputRequestContext:
        """Tells an `input_func` which `UserInputRequestedEvent` it answers."""

        @classmethod
        @contextlib.contextmanager
        def populate_context(cls, request_id: str) -> Generator[None]:
            """Set the identifier while the context is open."""
            reset = _request_id.set(request_id)
            try:
                yield
            finally:
                _request_id.reset(reset)

        @classmethod
        def request_id(cls) -> str:
            """Return the identifier. Raise `AgentError` outside an `input_func`."""
            try:
                return _request_id.get()
            except LookupError as error:
                raise AgentError(
                    "There is no request: call request_id() within the input_func of a "
                    "UserProxyAgent."
                ) from error

    component_version: ClassVar[int] = 1

    def __init__(
        self,
        name: str,
        *,
        description: str = "A human user",
        input_func: InputFuncType | None = None,
    ) -> None:
        super().__init__(name, description)
        self.input_func: InputFuncType = input_func or input

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the answers."""
        return (TextMessage, HandoffMessage)

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Ask the person."""
        async for item in self.on_messages_stream(messages, cancellation_token):
            if isinstance(item, Response):
                return item
        raise AssertionError("on_messages_stream ends with a Response")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield a `UserInputRequestedEvent`, and the person's answer.

        Raise `AgentError` if the answer cannot be read, or the last message is a handoff to another
        agent.
        """
        handoff = messages[-1] if messages and isinstance(messages[-1], HandoffMessage) else None
        if handoff is not None and handoff.target != self.name:
            raise AgentError(f"Handoff message target does not match agent name: {handoff.source}")
        request_id = str(uuid.uuid4())
        yield UserInputRequestedEvent(request_id=request_id, source=self.name)
        prompt = "Enter your response: "
        if handoff is not None:
            prompt = f"Handoff received from {handoff.source}. {prompt}"
        with self.InputRequestContext.populate_context(request_id):
            answer = await self._read_answer(prompt, cancellation_token)
        message = (
            TextMessage(content=answer, source=self.name)
            if handoff is None
            else HandoffMessage(content=answer, target=handoff.source, source=self.name)
        )
        yield Response(chat_message=message)

    async def _read_answer(self, prompt: str, token: CancellationToken) -> str:
        try:
            with cancelled_by(token):
                answer = await call_input_func(self.input_func, prompt, token)
            if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                raise TypeError(f"input_func must return a text, not {answer!r:.100}.")
            return answer
        except Exception as error:
            raise AgentError(f"Failed to get user input: {error}") from error

    async def on_reset(self, cancellation_token: CancellationToken | None = None) -> None:
        """Do nothing."""

    def _to_config(self) -> dict[str, object]:
        if self.input_func is not input:
            raise ComponentError(
                f"The agent {self.name!r} cannot be saved: its input_func is a function."
            )
        return {"name": self.name, "description": self.description, "input_func": None}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        arguments: dict[str, Any] = dict(config)
        if arguments.pop("input_func", None) is not None:
            raise ComponentError("An input_func cannot be loaded. Create the agent yourself.")
        return cls(**arguments)


async def call_input_func(
    input_func: InputFuncType, prompt: str, token: CancellationToken | None
) -> str:
    """Return what `input_func` returns. A function that is not async runs in a thread."""
    if inspect.iscoroutinefunction(input_func) or inspect.iscoroutinefunction(
        getattr(input_func, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await cast(AsyncInputFunc, input_func)(prompt, token)
    return await _run_in_daemon_thread(cast(SyncInputFunc, input_func), prompt)


async def _run_in_daemon_thread(function: SyncInputFunc, prompt: str) -> str:
    """Run `function` in a thread that does not keep the process alive.

    Nothing can end a thread that waits for the terminal.
    """
    loop = running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            text = context.run(function, prompt)
        except BaseException as error:
            report(lambda error=error: answer.set_exception(error))
        else:
            report(lambda: answer.set_result(text))

    def report(finish: Callable[[], None]) -> None:
        def finish_if_awaited() -> None:
            if not answer.done():
                finish()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish_if_awaited)

    threading.Thread(target=run, name="cellblock-user-input", daemon=True).start()
    try:
        return await answer
    except asyncio.CancelledError:
        # Wait until the prompt is written: a thread that holds the lock of `sys.stdout` when Python
        # exits makes it abort, and what was printed is lost.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        raise
