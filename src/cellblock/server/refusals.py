"""Refusals: what a server does not do for a client, and why. Doors translate them.

CellblockError
└── Refusal
    ├── InvalidRequest (ValueError)      the request itself is wrong
    │   └── InvalidFileName              the file name is outside the session's folder
    ├── RequestTimedOut                  the client stopped sending the request
    ├── NotAuthenticated                 the key is missing, unknown, expired or revoked
    ├── Forbidden                        the client may not do this
    ├── SessionNotFound (LookupError)    there is no such session, or it has just ended
    ├── SessionLost                      what had the session has ended
    ├── SessionElsewhere                 another server of the same database has the session
    ├── RunNotFound (LookupError)        there is no such run
    ├── RunIdReused                      another run has the ID that the client chose
    ├── CheckpointNotFound (LookupError)  there is no such checkpoint
    ├── PageNotFound (LookupError)       the console has no such page
    ├── NoRecords (LookupError)          a server without keys keeps none
    ├── FileMissing (LookupError)        the session has no such file
    ├── TooLarge                         a body or file exceeds its limit
    ├── TooManySessions                  the key or the server has no session left
    ├── NotInTime                        the program has not ended while the client waits
    ├── TooManyRuns                      the key's queue is full, or its CPU seconds are used up
    ├── DiskQuotaExceeded                the key's sessions have used up its bytes on disk
    ├── PolicyNotSupported               the key's policy needs a server with another executor
    └── Draining                         the server is about to stop
"""

from __future__ import annotations

from ..errors import CellblockError


class Refusal(CellblockError):
    """The server does not do what the client requested. The message is meant for the client."""


class InvalidRequest(Refusal, ValueError):
    """The request is malformed. The message names the field and what to send."""


class InvalidFileName(InvalidRequest):
    """The name of a file is not in the session's folder, or too long."""


class RequestTimedOut(Refusal):
    """The client sent nothing of its request for too long."""


class NotAuthenticated(Refusal):
    """The request has no valid API key."""


class Forbidden(Refusal):
    """The client is known but may not do this, or a page of another site has sent the request."""


class SessionNotFound(Refusal, LookupError):
    """There is no such session, or it has ended during the request.

    `identifier` is that of a session which the server does not have.
    """

    def __init__(self, message: str, identifier: str | None = None) -> None:
        super().__init__(message)
        self.identifier = identifier


class SessionLost(Refusal):
    """The process or machine that had the session has ended, and the session with it."""


class SessionElsewhere(Refusal):
    """Another server that uses the same database has the session."""


class RunNotFound(Refusal, LookupError):
    """There is no such run in the session."""


class RunIdReused(Refusal):
    """The client has sent another run under the ID that it chose for this one."""


class CheckpointNotFound(Refusal, LookupError):
    """The session has no checkpoint with this name."""


class PageNotFound(Refusal, LookupError):
    """The console has no such page."""


class NoRecords(Refusal, LookupError):
    """The server has no keys, and so keeps no records."""


class FileMissing(Refusal, LookupError):
    """The session has no file with this name."""


class TooLarge(Refusal):
    """A request body or a file is larger than the server accepts."""


class TooManySessions(Refusal):
    """The key or the server has as many sessions as it may have."""


class TooManyRuns(Refusal):
    """The key has as many runs waiting as it may have, or has used up its CPU seconds.

    `retry_after` is the number of seconds to wait before the next attempt, at least 1.
    """

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = max(1, retry_after)


class NotInTime(Refusal):
    """The program has not ended in the time for which clients wait. It continues for a while."""


class DiskQuotaExceeded(Refusal):
    """The sessions of the key have as many bytes on disk as they may have."""


class PolicyNotSupported(Refusal):
    """The policy of the key cannot be applied where this server runs its sessions."""


class Draining(Refusal):
    """The server accepts no new work because it is about to stop."""
