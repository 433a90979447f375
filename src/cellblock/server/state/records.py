"""What the database holds of runs, sessions and servers, without the database."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

SessionAction = Literal[
    "restart", "fork", "checkpoint", "checkpoint.delete", "restore", "file.upload", "file.delete"
]
KeyAction = Literal["key.add", "key.change", "key.revoke"]
ACTIONS: tuple[str, ...] = (
    *("run", "command", "session.start", "session.end"),
    *get_args(SessionAction),
    "sign-in",
    *get_args(KeyAction),
)  # of an `AuditRecord`


@dataclass(frozen=True)
class ServerIdentity:
    """A server that uses the database. The name is for people; `started_at` is in seconds."""

    id: str
    name: str
    started_at: int


@dataclass(frozen=True, kw_only=True)
class OtherSession:
    """A session of another server. Times are seconds since 1970; two are some seconds old."""

    identifier: str
    server: str
    created_at: float
    used_at: float
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """Who did what, when, and how it ended. It has no code, output or variable, no name and no
    content of a file, and no name of a checkpoint: those are what clients work with.

    time       when it began, in seconds since 1970
    key_id, key_name   the key, and its name at that time
    server     the name of the server, or of the machine of a command
    door       the protocol of the request; "command line" for `cellblock keys`
    action     one of `ACTIONS`
    session    the identifier that the client has chosen; None for a fresh process
    run        the ID of the run
    outcome    that of the result; "abandoned" if its client went away before, "stopped" if its
               session was ended, "failed" if the server could not run it, "refused" if it was not
               begun, as with a full disk; of the end of a session, its reason
    seconds, cpu_seconds   how long it took; the age of a session that has ended
    target     the identifier of the session that a fork has made
    size_bytes   of the files of an upload together
    by_key_id    the key of the administrator who has added, changed or revoked the key in the
                 console
    """

    time: float
    key_id: str
    key_name: str
    server: str = ""
    door: str
    action: str
    session: str | None = None
    run: str | None = None
    language: str | None = None
    outcome: str = "ok"
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    target: str | None = None
    size_bytes: int | None = None
    by_key_id: str | None = None

    def to_json(self) -> str:
        """Return one line of JSON, without what is None. The time is in ISO 8601 (UTC)."""
        time = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds")
        values = {**asdict(self), "time": time.replace("+00:00", "Z")}
        return json.dumps({name: value for name, value in values.items() if value is not None})


def storable(text: str) -> str:
    """Return `text` as every database accepts it: without NUL and lone surrogates."""
    valid = text.encode(errors="backslashreplace").decode()
    return valid.replace("\0", "\\x00")
