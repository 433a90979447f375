"""Write a procedure once for synchronous and asynchronous callers.

A procedure is a generator. Where it needs something that has a synchronous and an asynchronous
version, it yields a `Step`; `run` and `run_async` take the version that fits and send back the
result. Exceptions are raised inside the procedure, at the step.

A method in two versions has its signature once:

    @synchronous
    def generate_reply(self, …) -> Steps[…]: …

    a_generate_reply = asynchronous(generate_reply)
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
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


def in_thread(function: Callable[..., Any]) -> Step:
    """Return the call of `function`; in an asynchronous chat a thread makes it."""

    async def call(*arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(function, *arguments, **options)

    return Step(function, call)


def is_overridden(method: Callable[..., Any], own: Callable[..., Any]) -> bool:
    """Return True if `method` of an object is not the method `own` of its class."""
    return getattr(method, "__func__", method) is not own


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


def synchronous(procedure: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Return the function that runs `procedure` with the synchronous versions of its steps."""

    @functools.wraps(procedure)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        return run(procedure(*arguments, **options))

    return call


def asynchronous(
    function: Callable[P, T], *, if_overridden: Callable[..., Awaitable[T]] | None = None
) -> Callable[P, CoroutineType[Any, Any, T]]:
    """Return the asynchronous version `a_NAME` of a `synchronous` function NAME.

    If the object is of a subclass that overrides the method NAME, `if_overridden` calls that
    method without blocking the event loop. None: it is not called.
    """
    procedure = cast("Callable[P, Steps[T]]", vars(function)["__wrapped__"])

    @functools.wraps(procedure)
    async def call(*arguments: P.args, **options: P.kwargs) -> T:
        if if_overridden is not None:
            method = getattr(arguments[0], function.__name__)
            if is_overridden(method, function):
                return await if_overridden(method, *arguments[1:], **options)
        return await run_async(procedure(*arguments, **options))

    owner = function.__qualname__.removesuffix(function.__name__)
    call.__name__ = _async_name(function.__name__)
    call.__qualname__ = f"{owner}{call.__name__}"
    return call


def _async_name(name: str) -> str:
    return f"_a{name}" if name.startswith("_") else f"a_{name}"


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
