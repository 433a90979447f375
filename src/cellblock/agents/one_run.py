"""Refuse a run of an agent while another one is in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ..errors import AgentError


class OneRun:
    """One run at a time of the agent `name`, whose conversation two runs would mix up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[Any] | None = None  # of the run

    @contextmanager
    def running(self) -> Generator[None]:
        """Record that a run is in progress while the context is open.

        Raise `AgentError` if another task runs the agent. A run that this task began, or one whose
        task has ended, was left in the midst of its stream: it is replaced.
        """
        task = asyncio.current_task()
        if self._task not in (None, task) and not self._task.done():
            raise AgentError(
                f"{self._name} is running already. Wait for its answer, or make another agent: two "
                "concurrent runs would mix up its conversation."
            )
        self._task = task
        try:
            yield
        finally:
            if self._task is task:
                self._task = None
