"""Kernel: one running Jupyter kernel, independent of how it is reached."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from ...aio.shielded import wait_shielded
from .inbox import Inbox, KernelDied


class KernelServer:
    """What the server of a kernel reports out of band. This default knows nothing."""

    def is_running(self) -> bool:
        """Return False only if the server is known to have exited."""
        return True

    async def death_reason(self) -> KernelDied:
        """Return the reason for the death of a kernel that has just died."""
        return KernelDied()


class Kernel(ABC):
    """One kernel. It is never restarted: a new object replaces it.

    inbox           the messages of all its channels
    session         our session ID, which is in the parent header of the messages for us
    language        the language that it runs, as the kernel names it
    reconnections   how often the connection was lost and restored
    """

    def __init__(self, session: str, language: str) -> None:
        self.inbox = Inbox()
        self.session, self.language = session, language
        self.reconnections = 0
        self._closed = False

    @property
    def is_dead(self) -> bool:
        """Whether the kernel is known to have died."""
        return self.inbox.kernel_died is not None

    @abstractmethod
    async def send_execute(self, code: str, *, silent: bool = False) -> str:
        """Send an execute request, and return its message ID.

        Do not wait for the reply, and raise nothing if the kernel is dead.
        """

    @abstractmethod
    async def interrupt(self) -> None:
        """Interrupt the code that the kernel runs. Errors are ignored."""

    async def close(self) -> None:
        """Kill the kernel and everything that it has started. Do nothing the second time."""
        if not self._closed:
            self._closed = True
            self.inbox.close(KernelDied())
            await run_shielded(self._shut_down())

    @abstractmethod
    async def _shut_down(self) -> None:
        """Kill the kernel, and close the connections to it."""

    def cpu_seconds(self) -> float:
        """Return the CPU time used by the kernel and its descendants; 0 if it is not known."""
        return 0.0


async def run_shielded(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end even if this task is cancelled meanwhile. Meant for clean-up."""
    task = asyncio.ensure_future(work)
    await wait_shielded(task)
    task.result()
