"""Write a procedure once for synchronous and asynchronous callers.

A procedure is a generator. Where it needs something that has a synchronous and an asynchronous
version, it yields a `Step`; `run` and `run_async` take the version that fits and send back the
result. Exceptions are raised inside the procedure, at the step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
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
                step = steps.throw(error)
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
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value
