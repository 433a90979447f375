"""Write a procedure once for synchronous and asynchronous callers.

A procedure is a generator. Where it needs something that has a synchronous and an asynchronous
version, it yields a `Step`; `run` and `run_async` take the version that fits and send back the
result. Exceptions are raised inside the procedure, at the step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One call in two versions: `Step(agent.send, agent.a_send)`."""

    function: Callable[..., Any]
    async_function: Callable[..., Awaitable[Any]]

    def __call__(self, *arguments: Any, **options: Any) -> Steps[Any]:
        """Make the call: `reply = yield from Step(f, async_f)(argument)`."""
        return (
            yield Step(
                lambda: self.function(*arguments, **options),
                lambda: self.async_function(*arguments, **options),
            )
        )


Steps = Generator[Step, Any, T]


def run(steps: Steps[T]) -> T:
    """Run a procedure with the synchronous versions of its steps, and return its result."""
    try:
        step = next(steps)
        while True:
            try:
                value = step.function()
            except BaseException as error:
                step = steps.throw(_without_own_frames(error))
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value


async def run_async(steps: Steps[T]) -> T:
    """Run a procedure with the asynchronous versions of its steps, and return its result."""
    try:
        step = next(steps)
        while True:
            try:
                value = await step.async_function()
            except BaseException as error:
                step = steps.throw(_without_own_frames(error))
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value


def _without_own_frames(error: BaseException) -> BaseException:
    """Return `error` without the frames of this module in its traceback: they hide the cause."""
    kept: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != __file__:
            kept.append(trace)
        trace = trace.tb_next
    for each, following in zip(kept, [*kept[1:], None], strict=True):
        each.tb_next = following
    return error.with_traceback(kept[0] if kept else None)
