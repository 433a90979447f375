"""OpenTelemetry spans of what Cellblock does, if the program has configured an SDK.

Names are those of the semantic conventions for generative AI 0.1, where these have any, and begin
with `cellblock.` otherwise. Without an SDK nothing happens: OpenTelemetry is not even imported
before the program itself has imported it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

ItemT = TypeVar("ItemT")
LastT = TypeVar("LastT")
Value = str | bool | int | float | Sequence[str] | None
Attributes = Mapping[str, Value]

CANCELLED = "cancelled"  # the error type of what was cancelled, or closed before its end
_CONTENT_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS = frozenset({"1", "true", "span_only", "span_and_event"})  # values of the switch
_OPERATION = "cellblock.operation"  # a key of OpenTelemetry's context


class Span:
    """An open span, or none: all methods of this class do nothing.

    records_content   whether code, output, messages and arguments shall be recorded
    """

    is_open = False
    records_content = False

    def set(self, name: str, value: Value) -> None:
        """Set an attribute. None sets nothing."""

    def fail(self, error_type: str) -> None:
        """Report that the operation failed."""

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with `error` if it failed. Do nothing if it has ended."""

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make it the parent of spans that begin in this context."""
        return contextlib.nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def stream(
        self,
        items: AsyncGenerator[ItemT, None],
        last: type[LastT],
        record: Callable[[LastT], None] | None = None,
    ) -> AsyncGenerator[ItemT, None]:
        """Return `items`, whose steps happen in the span.

        An item of the class `last` ends it, after it was passed to `record`.
        """
        return items


NO_SPAN = Span()


class _OpenSpan(Span):
    is_open = True

    def __init__(
        self, tracer: Tracer, name: str, attributes: Attributes, operation: str, *, is_client: bool
    ) -> None:
        api = _api()
        self._api = api
        self._span = tracer.start_span(
            name,
            kind=api.trace.SpanKind.CLIENT if is_client else api.trace.SpanKind.INTERNAL,
            attributes={
                key: _encodable(value) for key, value in attributes.items() if value is not None
            },
        )
        self._context = api.context.set_value(
            _OPERATION, operation, api.trace.set_span_in_context(self._span)
        )
        self.records_content = self._span.is_recording() and _wants_content()

    def set(self, name: str, value: Value) -> None:
        if value is not None:
            self._span.set_attribute(name, _encodable(value))

    def fail(self, error_type: str) -> None:
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(self._api.trace.StatusCode.ERROR)

    def end(self, error: BaseException | None = None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if error is not None:
            self.fail(_error_type(error))
            if self.records_content:  # its message can quote what was run or asked
                self._span.record_exception(error)
        self._span.end()

    def current(self) -> contextlib.AbstractContextManager[None]:
        return _attached(self._context)

    def __enter__(self) -> Self:
        self._entered = self.current()
        self._entered.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.__exit__(None, None, None)
        self.end(error)

    async def stream(
        self,
        items: AsyncGenerator[ItemT, None],
        last: type[LastT],
        record: Callable[[LastT], None] | None = None,
    ) -> AsyncGenerator[ItemT, None]:
        # The span is current within each step only: the code after a `yield` is the caller's.
        try:
            async with aclosing(items):
                while True:
                    try:
                        with self.current():
                            item = await anext(items)
                    except StopAsyncIteration:
                        break
                    self._end_at(item, last, record)
                    yield item
        except BaseException as error:
            self.end(error)
            raise
        self.end()

    def _end_at(
        self, item: object, last: type[LastT], record: Callable[[LastT], None] | None
    ) -> None:
        if self.is_open and isinstance(item, last):
            if record is not None:
                record(item)
            self.end()


def span(
    name: str, attributes: Attributes, *, operation: str = "", is_client: bool = False
) -> Span:
    """Begin a span below the current one. It must be ended: by `with`, `stream` or `end`.

    operation   what `is_inside` is asked for
    is_client   whether it describes a request to another service
    """
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    return _OpenSpan(tracer, name, attributes, operation, is_client=is_client)


def genai_span(
    operation: str, target: str | None, attributes: Attributes, *, is_client: bool = False
) -> Span:
    """Begin a span of an operation that the conventions for generative AI know."""
    if _tracer() is None:
        return NO_SPAN
    return span(
        f"{operation} {target}" if target else operation,
        {"gen_ai.operation.name": operation, **attributes},
        operation=operation,
        is_client=is_client,
    )


def is_on() -> bool:
    """Return True if spans are recorded."""
    return _tracer() is not None


def is_inside(operation: str) -> bool:
    """Return True if the innermost span of ours is one of `operation`."""
    return _tracer() is not None and _api().context.get_value(_OPERATION) == operation


def present_context() -> object:
    """Return what spans that begin now are below, for `continued`. None without an SDK."""
    return None if _tracer() is None else _api().context.get_current()


def context_of(headers: Mapping[str, str]) -> object:
    """Return what spans of a request with these headers are below. None without an SDK.

    None as well if something else has begun a span for the request already.
    """
    if _tracer() is None or _api().trace.get_current_span().get_span_context().is_valid:
        return None
    from opentelemetry import propagate

    return propagate.extract(headers)


def headers_of_context() -> dict[str, str]:
    """Return the headers by which a service continues the present trace. {} without an SDK."""
    headers = dict[str, str]()
    if _tracer() is not None:
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


@contextlib.contextmanager
def continued(context: object) -> Generator[None]:
    """Let spans begin below `context`; None changes nothing."""
    if context is None:
        yield
    else:
        with _attached(context):
            yield


@contextlib.contextmanager
def _attached(context: object) -> Generator[None]:
    attachment = _api().context.attach(context)
    try:
        yield
    finally:
        _api().context.detach(attachment)


def _wants_content() -> bool:
    return os.environ.get(_CONTENT_SWITCH, "").strip().lower() in _ON_SPANS


def _encodable(value: Value) -> Any:
    """Return `value` without characters that UTF-8 lacks: exporters lose the whole span."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, Sequence):
        return [_encodable(each) for each in value]
    return value


def _error_type(error: BaseException) -> str:
    """Return the full name of the class of `error`."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return CANCELLED
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


class _Api(NamedTuple):
    context: Any
    trace: Any


@functools.cache
def _api() -> _Api:
    from opentelemetry import context, trace

    return _Api(context, trace)


_known: tuple[TracerProvider, Tracer] | None = None


def _tracer() -> Tracer | None:
    """Return our tracer, or None if the program has configured no SDK."""
    global _known
    if "opentelemetry.trace" not in sys.modules:
        return None
    trace = _api().trace
    provider: TracerProvider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    if _known is None or _known[0] is not provider:
        version: str = sys.modules["cellblock"].__version__  # which is above all layers
        _known = provider, provider.get_tracer("cellblock", version)
    return _known[1]
