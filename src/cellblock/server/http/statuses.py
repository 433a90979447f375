"""The HTTP status and the error code of each error."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import BackendError, ServerFull, SessionError, WorkspaceError
from .. import refusals


@dataclass(frozen=True)
class ErrorStatus:
    """The answer to an error. Programs compare `code`."""

    status: int
    code: str
    headers: dict[str, str] = field(default_factory=dict[str, str])


_STATUSES: tuple[tuple[type[Exception], ErrorStatus], ...] = (
    (refusals.InvalidFileName, ErrorStatus(400, "InvalidFileName")),
    (refusals.InvalidRequest, ErrorStatus(400, "InvalidRequest")),
    (
        refusals.NotAuthenticated,
        ErrorStatus(401, "Unauthorized", {"WWW-Authenticate": "Bearer"}),
    ),
    (refusals.Forbidden, ErrorStatus(403, "Forbidden")),
    (refusals.RequestTimedOut, ErrorStatus(408, "RequestTimeout", {"Connection": "close"})),
    (refusals.SessionNotFound, ErrorStatus(404, "SessionNotFound")),
    (refusals.SessionLost, ErrorStatus(503, "SessionLost", {"Retry-After": "10"})),
    (refusals.SessionElsewhere, ErrorStatus(421, "SessionElsewhere")),
    (refusals.RunNotFound, ErrorStatus(404, "ExecutionNotFound")),
    (refusals.RunIdReused, ErrorStatus(422, "IdempotencyKeyReused")),
    (refusals.CheckpointNotFound, ErrorStatus(404, "CheckpointNotFound")),
    (refusals.PageNotFound, ErrorStatus(404, "NotFound")),
    (refusals.NoRecords, ErrorStatus(404, "NotFound")),
    (refusals.FileMissing, ErrorStatus(404, "FileNotFound")),
    (refusals.TooLarge, ErrorStatus(413, "PayloadTooLarge")),
    (refusals.TooManySessions, ErrorStatus(429, "TooManySessions", {"Retry-After": "10"})),
    (refusals.NotInTime, ErrorStatus(504, "NotInTime", {"Retry-After": "1"})),
    (refusals.DiskQuotaExceeded, ErrorStatus(507, "DiskQuotaExceeded")),
    (refusals.PolicyNotSupported, ErrorStatus(403, "PolicyNotSupported")),
    (refusals.Draining, ErrorStatus(503, "ServerStopping", {"Retry-After": "10"})),
    (WorkspaceError, ErrorStatus(507, "InsufficientStorage")),
    (SessionError, ErrorStatus(409, "SessionConflict")),
    (ServerFull, ErrorStatus(503, "ServerFull", {"Retry-After": "10"})),
    (BackendError, ErrorStatus(503, "BackendUnavailable", {"Retry-After": "10"})),
)


def status_of(error: Exception) -> ErrorStatus:
    """Return how to answer `error`: status 500 for an error that is not Cellblock's."""
    if isinstance(error, refusals.TooManyRuns):
        return ErrorStatus(429, "TooManyRequests", {"Retry-After": str(error.retry_after)})
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return ErrorStatus(500, "InternalError")


def message_of(error: Exception) -> str:
    """Return what a client is told about `error`. Internals stay in the log."""
    if isinstance(error, BackendError) and status_of(error).code == "BackendUnavailable":
        return (
            "The server cannot run code at present. Its log has the details under the ID of this "
            "request. Send it again later."
        )
    if status_of(error).status == 500:
        return "The server failed. Its log has the details under the ID of this request."
    return str(error)
