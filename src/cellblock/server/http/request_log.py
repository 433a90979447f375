"""RequestLog: an ID for each request, and one line of log without code, output and file names."""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)
_VALID_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID_HEADERS = ("x-request-id", "x-ms-request-id")


class RequestLog:
    """ASGI middleware. `request.state.request_id` is the ID, which answers have as a header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = _request_id(scope)
        began, status = time.monotonic(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name in _ID_HEADERS:
                    headers[name] = state["request_id"]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            _log.info(
                "request",
                extra={
                    "request_id": state["request_id"],
                    "method": scope["method"],
                    "operation": state.get("operation", "other"),
                    "status": status or None,  # None: the client went away before the answer
                    "seconds": round(time.monotonic() - began, 6),
                    "key": state.get("key_id"),
                },
            )


def _request_id(scope: Scope) -> str:
    given = Request(scope).headers.get("x-request-id", "")
    return given if _VALID_ID.fullmatch(given) else uuid4().hex


class JsonFormatter(logging.Formatter):
    """Format a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`."""
        names = ("request_id", "method", "operation", "status", "seconds", "key")
        values: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in names if hasattr(record, name)},
        }
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=False)
