"""The refusals of the session service as `ServiceError`. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from ...errors import ServiceError

_REQUEST_ID_HEADERS = ("x-ms-request-id", "x-request-id", "operation-id")
_MAX_QUOTE = 500
_ADVICE = {
    400: "Check the arguments, such as session_id and timeout.",
    401: "Check the credential.",
    403: "The identity needs the role 'Azure ContainerApps Session Executor' on the pool.",
    404: "Check pool_management_endpoint, and whether the pool has a session left.",
    413: "Send a smaller file.",
    429: "Wait, or raise the limits of the pool.",
}


def refusal(
    task: str, address: str, status: int, headers: Mapping[str, str], body: bytes
) -> ServiceError:
    """Return the error for an answer with an HTTP status that reports a failure.

    task      what the request was to do, such as "running a block"
    address   the endpoint
    """
    code, message = _error_in(body)
    code = headers.get("x-ms-error-code") or code
    request_id = next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), None)
    facts = [f"HTTP status {status}", code or "", f"request ID {request_id}" if request_id else ""]
    text = f"Error while {task}: {address} answered with {', '.join(filter(None, facts))}"
    sentences = [f"{text}: {message}" if message else f"{text}.", _ADVICE.get(status, "")]
    return ServiceError(
        " ".join(filter(None, sentences)), status=status, code=code, request_id=request_id
    )


def unreachable(task: str, address: str, error: Exception) -> ServiceError:
    """Return the error for a request without an answer."""
    reason = str(error) or type(error).__name__
    return ServiceError(
        f"Error while {task}: {address} gave no answer ({reason}). "
        "Check the address and the network."
    )


def untrusted(task: str, address: str, error: Exception) -> ServiceError:
    """Return the error for a service whose TLS certificate is not trusted."""
    return ServiceError(
        f"Error while {task}: no trusted TLS connection to {address} ({error}). For a certificate "
        "of your own, name its file in the environment variable SSL_CERT_FILE."
    )


def invalid_answer(task: str, address: str, reason: object) -> ServiceError:
    """Return the error for an answer that cannot be read."""
    return ServiceError(
        f"Error while {task}: {address} does not answer like a session pool ({reason}). "
        "Check pool_management_endpoint."
    )


def _error_in(body: bytes) -> tuple[str | None, str]:
    """Return the code and the message of an error object; the text itself if it is not one."""
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        return None, _sentence(body.decode(errors="replace"))
    fields = _fields(_fields(answer).get("error")) or _fields(answer)
    code, message = fields.get("code"), fields.get("message")
    return (
        code if isinstance(code, str) and code else None,
        _sentence(message if isinstance(message, str) else ""),
    )


def _fields(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."
