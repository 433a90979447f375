"""Spans that the SDK has kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class Recorded:
    """An SDK, and the spans that have ended."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        """Return the spans in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """Return the only span with this name."""
        [found] = [span for span in self.all() if span.name == name]
        return found

    def tree(self) -> list[str]:
        """Return the names of all spans, indented below their parents, without `create_agent`."""
        return self._below(None, "")

    def _below(self, parent: int | None, indent: str) -> list[str]:
        lines: list[str] = []
        for span in self.all():
            if (span.parent and span.parent.span_id) == parent:
                if not span.name.startswith("create_agent"):
                    lines.append(f"{indent}{span.name}")
                lines += self._below(span.get_span_context().span_id, f"{indent}  ")  # pyright: ignore[reportOptionalMemberAccess] - an ended span has one
        return lines

    def text(self) -> str:
        """Return everything that the spans say."""
        return "\n".join(span.to_json() for span in self.all())


def attributes(span: ReadableSpan) -> dict[str, object]:
    """Return the attributes of `span`, without those whose values nobody knows before."""
    unknown = {"cellblock.cpu_seconds", "cellblock.peak_memory_bytes", "cellblock.queue_seconds"}
    return {key: value for key, value in (span.attributes or {}).items() if key not in unknown}


def error_of(span: ReadableSpan) -> tuple[str, object]:
    """Return the status of `span`, and the type of its error."""
    return span.status.status_code.name, attributes(span).get("error.type")
