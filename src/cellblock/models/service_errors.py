"""The errors of the services' SDKs as `ModelError`. The SDKs name their errors alike."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Generator, Mapping
from http import HTTPStatus
from typing import Any, cast

from pydantic import ValidationError

from ..errors import CellblockError, ModelError

# By the status, or by the kind of failure if there is none.
ADVICE: Mapping[int | str, str] = {
    400: "Check the arguments of the client.",
    401: "Check the API key.",
    402: "Check the plan and the billing of the account: waiting does not help.",
    403: "Check what the API key may do.",
    404: "Check model= and the address of the service.",
    413: "Send fewer or shorter messages.",
    429: "Wait, or raise max_retries=.",
    "timeout": "Raise timeout=.",
    "address": "Check the address.",
    "broken": "Ask again.",
    "empty": "The messages may be too long for the model: send fewer or shorter ones.",
}
RATE_LIMIT = 429
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
# How services say when to ask again, such as "try again in 1m2.5s" or "retry after 5 seconds".
_WAIT = re.compile(
    r"(?:try|retry)(?: again)? (?:in|after) (?:(\d+) ?m(?!s)(?:in\w*)? ?)?(?:([\d.]+) ?(ms|s)\b|"
    r"([\d.]+) sec)?",
    re.IGNORECASE,
)
_HTML_TITLE = re.compile(r"<title>\s*(.*?)\s*</title>", re.IGNORECASE | re.DOTALL)
_BUSY = (408, 409, 429)
_MOST_RETRIES = 2
_MOST_STATED_WAITS = 5
_LONGEST_WAIT = 300.0


class EmptyStream(ValueError):
    """The service answered with status 200, and sent nothing."""


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
        text, advice = _describe(error, service, status, request_id)
        kind = type(error)
        is_of_sdk = kind.__module__.partition(".")[0] in _SDKS
        error_class = _class_of_both(kind) if is_of_sdk else ModelError
        message = f"{text} {advice}".rstrip()
        translated = error_class(message, status=status, request_id=request_id, advice=advice)
        translated.__dict__.update(vars(error) if is_of_sdk else {})
        raise translated from error


@functools.cache
def _class_of_both(kind: type[Exception]) -> type[ModelError]:
    """Return a subclass of `ModelError` and of the SDK's class `kind`."""
    names = {"__module__": ModelError.__module__, "__reduce__": _reduce_to_model_error}
    return cast(type[ModelError], type(ModelError.__name__, (ModelError, kind), names))


def _reduce_to_model_error(error: ModelError) -> tuple[Any, ...]:
    """Return what pickles: the SDK's errors hold connections."""
    state = {"status": error.status, "request_id": error.request_id, "advice": error.advice}
    return ModelError, error.args, state


def is_too_long(error: ModelError) -> bool:
    """Return True if the service refused the messages because they are too many or too long."""
    return error.status is not None and is_too_long_text(error.status, str(error))


def is_too_long_text(status: int, text: str) -> bool:
    """Return True if an answer with `status` and `text` says so."""
    return status == 413 or (status in (400, 422) and bool(_TOO_LONG.search(text)))


def raise_reported_error(service: str, answer: object) -> None:
    """Raise `ModelError` if `answer`, whose status is 200, is an error of the service."""
    if isinstance(answer, Mapping) and (error := cast(Mapping[str, object], answer).get("error")):
        text = _message(error) or repr(error)
        raise ModelError(f"{service} answered with an error: {_sentence(text)}")


def retry_delay(error: ModelError, attempts: int) -> float | None:
    """Return in how many seconds to ask again, after `attempts`; None if that is of no use.

    That is when the service says so, or sooner if it does not say when.
    """
    is_unreachable = type(error.__cause__).__name__ == "APIConnectionError"
    is_busy = error.status is not None and (error.status in _BUSY or error.status >= 500)
    if not (is_unreachable or is_busy) or error.advice == ADVICE[402]:
        return None
    stated = _stated_wait(error)
    if stated is None:
        return 0.5 * 2.0 ** (attempts - 1) if attempts <= _MOST_RETRIES else None
    return stated if stated <= _LONGEST_WAIT and attempts <= _MOST_STATED_WAITS else None


def _stated_wait(error: ModelError) -> float | None:
    """Return in how many seconds the service wants to be asked again."""
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", {})
    with contextlib.suppress(ValueError):
        if seconds := float(headers.get("retry-after", "")):
            return max(0.0, seconds)
    for match in _WAIT.finditer(str(error)):
        minutes, number, unit, seconds = match.groups()
        if minutes or number or seconds:
            rest = float((number or seconds or "0").rstrip("."))
            return 60 * float(minutes or 0) + rest / (1000 if unit == "ms" else 1)
    return None


def _describe(
    error: Exception, service: str, status: int | None, request_id: str | None
) -> tuple[str, str]:
    """Return what happened, and what to do."""
    kind = type(error).__name__
    if status is not None and status >= 400:
        number = f", request ID {request_id}" if request_id else ""
        text = _quote(error)
        advice = ADVICE[413] if is_too_long_text(status, text) else ADVICE.get(status, "")
        if _NO_CREDIT.search(f"{text} {getattr(error, 'code', '')}"):
            advice = ADVICE[402]
        return f"{service} answered with status {status}{number}: {text}", advice
    if "Timeout" in kind:
        return f"{service} did not answer in time.", ADVICE["timeout"]
    cause = (error.__cause__ or error) if "Connection" in kind else error
    reason = _sentence(str(cause) or type(cause).__name__)
    if type(cause).__name__ in _BROKEN:
        return f"{service} closed the connection too early: {reason}", ADVICE["broken"]
    if "Connection" in kind:
        return f"{service} cannot be reached: {reason}", ADVICE["address"]
    if isinstance(error, EmptyStream):
        return f"{service} ended its stream without an answer.", ADVICE["empty"]
    if isinstance(error, ValueError):
        return f"{service} sent an answer that cannot be read: {_quote(error)}", ""
    return f"{service} could not be asked: {_quote(error)}", ""


def _quote(error: Exception) -> str:
    """Return what the service says about `error`, as a sentence."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the answer"
        text = f"{place}: {first['msg']}, not {first['input']!r:.100}"
    else:
        body: object = getattr(error, "body", None)
        text = _message(body) or ("" if isinstance(body, Mapping) else _status_phrase(error))
        text = text or str(error) or type(error).__name__
    return _sentence(text)


def _status_phrase(error: Exception) -> str:
    """Return the name of the status of an answer without a message."""
    with contextlib.suppress(ValueError):
        return HTTPStatus(getattr(error, "status_code", 0)).phrase
    return ""


def _sentence(text: str) -> str:
    text = text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _message(body: object) -> str:
    """Return the message in the body of an error: {"error": {"message": …}}, or a part of it.

    "detail" is that of FastAPI. Of a page of a proxy, only its title is returned.
    """
    if isinstance(body, str):
        title = _HTML_TITLE.search(body)
        return title[1] if title else "" if body.lstrip().startswith("<") else body
    if not isinstance(body, Mapping):
        return ""
    fields = cast(Mapping[str, object], body)
    message = fields.get("message")
    return message if isinstance(message, str) else _message(fields.get("error") or _detail(fields))


def _detail(fields: Mapping[str, object]) -> str:
    detail = fields.get("detail")
    return detail if isinstance(detail, str) else "" if detail is None else repr(detail)
