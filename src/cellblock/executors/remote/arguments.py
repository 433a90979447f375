"""Check the arguments of executors for remote services."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import urlsplit

from ...limits import LOCAL_LIMITS, Limits
from ..argument_checks import check_limits
from .access_token import Credential

_ENFORCED_LIMITS = ("wall_seconds", "output_bytes")
_SESSION_ID = re.compile(r"[a-zA-Z0-9_|}{\[\]:\"';<>?/.,@#$%^&*()\-+=!~`]{4,128}")


def check_endpoint(value: object) -> str:
    """Return the URL without a final slash. Raise `ValueError` if it is not one of HTTP."""
    parts = urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            "pool_management_endpoint must be a URL with a host, such as "
            f"https://REGION.dynamicsessions.io/... or http://127.0.0.1:8000, not {value!r:.100}."
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            "pool_management_endpoint must not contain a user, a query or a fragment. "
            "Pass the token as credential=..."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def check_credential(value: object) -> Credential | str | None:
    """Return `value`. Raise `ValueError` if it is not a credential, without showing it."""
    if value is None or (isinstance(value, str) and value.isascii() and value.isprintable()):
        if value != "":
            return value
    elif callable(getattr(value, "get_token", None)):
        return value  # pyright: ignore[reportReturnType] - it has the method
    raise ValueError(
        "credential must have the method get_token, as DefaultAzureCredential(), or be the token "
        f"as a string of ASCII characters; this {type(value).__name__} is neither."
    )


def check_session_id(value: object) -> str | None:
    """Return `value`. Raise `ValueError` if the service would not accept it."""
    if value is None or (isinstance(value, str) and _SESSION_ID.fullmatch(value)):
        return value
    raise ValueError(
        f"session_id must have 4 to 128 ASCII letters, digits or signs, not {value!r:.150}."
    )


def check_enforced_limits(limits: object) -> Limits:
    """Return the limits. Raise `ValueError` for one that a remote service cannot enforce."""
    checked = check_limits(limits, LOCAL_LIMITS)
    named = checked.to_dict().items()
    if other := [
        name for name, value in named if value is not None and name not in _ENFORCED_LIMITS
    ]:
        raise ValueError(
            f"A remote service cannot enforce {', '.join(other)}. Set only "
            f"{' and '.join(_ENFORCED_LIMITS)}."
        )
    return checked


def path_in_session(name: str) -> str | None:
    """Return the path of a file relative to the folder of the session; None if it is outside."""
    path = posixpath.normpath(name)
    is_outside = path in (".", "..") or path.startswith(("/", "../")) or "\0" in path
    return None if is_outside else path
