"""Spans, as OpenTelemetry's own SDK receives them."""
