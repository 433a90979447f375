"""The errors of the services' SDKs as `ModelError`. The SDKs name their errors alike."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Generator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from ..errors import CellblockError, ModelError

_ADVICE = {
    400: "Check the arguments of the client.",
    401: "Check the API key.",
    402: "Check the plan and the billing of the account: waiting does not help.",
    403: "Check what the API key may do.",
    404: "Check model= and the address of the service.",
    413: "Send fewer or shorter messages.",
    429: "Wait, or raise max_retries=.",
}
_TOO_LONG = re.compile(
    r"context.(length|window|size)|(prompt|input|conversation) is too long|"
    r"too many (input )?tokens|maximum number of tokens|reduce the length",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient.(quota|balance|credit)|current quota|credit balance", re.I)
_SDKS = ("openai", "anthropic")
# Errors of httpx: the service was reached.
_BROKEN = ("RemoteProtocolError", "ReadError", "WriteError", "CloseError")
_MAX_QUOTE = 500


@contextlib.contextmanager
def service_errors(service: str) -> Generator[None]:
    """Raise `ModelError` for every error of the SDK, with the HTTP status and the request ID.

    `service` names the service and its address. `except` with the SDK's class catches the error
    too, as scripts for AutoGen do.
    """
    try:
        yield
    except CellblockError:
        raise
    except Exception as error:
        status: int | None = getattr(error, "status_code", None)
        request_id: str | None = getattr(error, "request_id", None)
        text = _describe(error, service, status, request_id)
        kind = type(error)
        is_of_sdk = kind.__module__.partition(".")[0] in _SDKS
        error_class = _class_of_both(kind) if is_of_sdk else ModelError
        translated = error_class(text, status=status, request_id=request_id)
        translated.__dict__.update(vars(error) if is_of_sdk else {})
        raise translated from error


@functools.cache
def _class_of_both(kind: type[Exception]) -> type[ModelError]:
    """Return a subclass of `ModelError` and of the SDK's class `kind`."""
    names = {"__module__": ModelError.__module__, "__reduce__": _reduce_to_model_error}
    return cast(type[ModelError], type(ModelError.__name__, (ModelError, kind), names))


def _reduce_to_model_error(error: ModelError) -> tuple[Any, ...]:
    """Return what pickles: the SDK's errors hold connections."""
    state = {"status": error.status, "request_id": error.request_id}
    return ModelError, error.args, state


def is_too_long(error: ModelError) -> bool:
    """Return True if the service refused the messages because they are too many or too long."""
    return error.status is not None and _is_too_long(error.status, str(error))


def _is_too_long(status: int, text: str) -> bool:
    return status == 413 or (status in (400, 422) and bool(_TOO_LONG.search(text)))


def raise_reported_error(service: str, answer: object) -> None:
    """Raise `ModelError` if `answer`, whose status is 200, is an error of the service."""
    if isinstance(answer, Mapping) and (error := cast(Mapping[str, object], answer).get("error")):
        text = _message(error) or repr(error)
        raise ModelError(f"{service} answered with an error: {_sentence(text)}")


def _describe(error: Exception, service: str, status: int | None, request_id: str | None) -> str:
    kind = type(error).__name__
    if status is not None and status >= 400:
        number = f", request ID {request_id}" if request_id else ""
        text = _quote(error)
        advice = _ADVICE[413] if _is_too_long(status, text) else _ADVICE.get(status, "")
        if _NO_CREDIT.search(f"{text} {getattr(error, 'code', '')}"):
            advice = _ADVICE[402]
        return f"{service} answered with status {status}{number}: {text} {advice}".rstrip()
    if "Timeout" in kind:
        return f"{service} did not answer in time. Raise timeout=."
    cause = (error.__cause__ or error) if "Connection" in kind else error
    reason = _sentence(str(cause) or type(cause).__name__)
    if type(cause).__name__ in _BROKEN:
        return f"{service} closed the connection too early: {reason} Ask again."
    if "Connection" in kind:
        return f"{service} cannot be reached: {reason} Check the address."
    if isinstance(error, ValueError):
        return f"{service} sent an answer that cannot be read: {_quote(error)}"
    return f"The request to {service} failed: {_quote(error)}"


def _quote(error: Exception) -> str:
    """Return what the service says about `error`, as a sentence."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the answer"
        text = f"{place}: {first['msg']}, not {first['input']!r:.100}"
    else:
        text = _message(getattr(error, "body", None)) or str(error) or type(error).__name__
    return _sentence(text)


def _sentence(text: str) -> str:
    text = text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _message(body: object) -> str:
    """Return the message in the body of an error: {"error": {"message": …}}, or a part of it."""
    if isinstance(body, str):
        return body
    if not isinstance(body, Mapping):
        return ""
    fields = cast(Mapping[str, object], body)
    message = fields.get("message")
    return message if isinstance(message, str) else _message(fields.get("error"))
