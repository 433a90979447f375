"""The URIs of files in sessions: sandbox://SESSION/PATH, both percent-encoded."""

from __future__ import annotations

from urllib.parse import quote, unquote

_SCHEME = "sandbox://"
FILE_URI_TEMPLATE = "sandbox://{session_id}/{+path}"


def file_uri(session_id: str, path: str) -> str:
    """Return the URI of a file in a session. `path` is relative to the session's folder."""
    return f"{_SCHEME}{quote(session_id, safe='')}/{quote(path)}"


def parse_file_uri(uri: str) -> tuple[str, str] | None:
    """Return the session and the path that a URI names; None if it has another form."""
    session_id, _, path = uri.removeprefix(_SCHEME).partition("/")
    if not uri.startswith(_SCHEME) or not session_id or not path:
        return None
    return unquote(session_id), unquote(path)
