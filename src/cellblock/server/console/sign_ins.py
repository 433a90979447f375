"""SignIns: who is signed in to the console. A cookie names a random token, never the key."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

SIGN_IN_SECONDS = 12 * 3600
_TOKEN_BYTES = 32
_MAX_OF_A_KEY = 50
_MAX_TOKEN_LENGTH = 100


@dataclass(frozen=True)
class SignIn:
    """One browser that is signed in. `key_digest` is the SHA-256 of its key."""

    key_id: str
    key_digest: str
    expires_at: float


class SignIns:
    """The sign-ins of a server, by the digest of their token. They end with the server.

    `now` returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._found = OrderedDict[str, SignIn]()  # oldest first, so those that expire first

    def add(self, key_id: str, key_digest: str) -> str:
        """Return the token of a new sign-in. The oldest ones of a key with many are ended."""
        self._drop_expired()
        own = [token for token, each in self._found.items() if each.key_id == key_id]
        for token in own[: len(own) - _MAX_OF_A_KEY + 1]:
            del self._found[token]
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        expires_at = self._now() + SIGN_IN_SECONDS
        self._found[_digest(token)] = SignIn(key_id, key_digest, expires_at)
        return token

    def find(self, token: str) -> SignIn | None:
        """Return the sign-in with this token; None if it is unknown, or has ended or expired."""
        self._drop_expired()
        return self._found.get(_digest(token)) if len(token) <= _MAX_TOKEN_LENGTH else None

    def end(self, token: str) -> None:
        """End a sign-in, if there is one with this token."""
        self._found.pop(_digest(token), None)

    def _drop_expired(self) -> None:
        now = self._now()
        while self._found and next(iter(self._found.values())).expires_at <= now:
            self._found.popitem(last=False)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
