"""Metrics: what Prometheus reads of a server, and the middleware that counts its requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..owners import Owner
from ..sessions.session import SessionRun
from .endpoints import Endpoints, json_error
from .services import Services

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_STATUS = "none"  # the client went away before the answer
_NO_RESULT = "none"  # the client went away, or the session was lost


class Metrics:
    """The metrics of one server: its sessions, runs and requests, and its process.

    `route` serves them, with a key if the server has keys. `middleware` counts requests; put it
    inside `RequestLog`.
    """

    def __init__(self, services: Services) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "cellblock_requests",
            "Requests by operation",
            ["operation", "method", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "cellblock_request_seconds",
            "Time from a request to the end of its answer",
            ["operation"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._runs = Counter(
            "cellblock_runs", "Runs by outcome", ["outcome"], registry=self._registry
        )
        self._queue_seconds = Histogram(
            "cellblock_queue_seconds",
            "Time from the request of a run to its start",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        lost = Counter(
            "cellblock_sessions_lost",
            "Sessions that had ended unexpectedly when their next request came",
            registry=self._registry,
        )
        store = services.store
        store.on_run_end, store.on_session_lost = self.add_run, lost.inc
        self._add_gauge("sessions", "Sessions of all keys", lambda: store.session_count)
        self._add_gauge("runs_active", "Runs that are active", lambda: store.queue.running_count)
        self._add_gauge("runs_waiting", "Runs in the queues", lambda: store.queue.waiting_count)
        self._add_gauge(
            "draining", "1 if the server is about to stop", lambda: int(store.is_draining)
        )
        ProcessCollector(registry=self._registry)
        endpoints = Endpoints(services, "server", json_error)
        self.route: Route = endpoints.route("GET", "/metrics", self.metrics)
        self.middleware = Middleware(_RequestMetrics, metrics=self)

    async def metrics(self, _request: Request, _owner: Owner) -> Response:
        """Answer GET /metrics, in the text format of Prometheus."""
        return Response(
            generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    def add_request(self, operation: str, method: str, status: int, seconds: float) -> None:
        """Count a request. `status` is 0 if there was no answer."""
        method = method if method in _METHODS else "other"
        self._requests.labels(operation, method, str(status or _NO_STATUS)).inc()
        self._seconds.labels(operation).observe(seconds)

    def add_run(self, run: SessionRun) -> None:
        """Count a run that had its turn."""
        self._runs.labels(run.outcome or _NO_RESULT).inc()
        self._queue_seconds.observe(run.queue_seconds)

    def _add_gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        Gauge(f"cellblock_{name}", about, registry=self._registry).set_function(read)


class _RequestMetrics:
    """ASGI middleware that counts requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            operation = scope.get("state", {}).get("operation", "other")
            seconds = time.monotonic() - began
            self._metrics.add_request(operation, scope["method"], status, seconds)
