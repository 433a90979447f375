"""GenerateToken: the wish for a random token of a Jupyter server."""

from __future__ import annotations


class GenerateToken:
    """Asks for a random token, for each server another one."""


Token = str | GenerateToken | None


def to_token(token: Token) -> str | None:
    """Return `token` as our servers expect it: None for a random one."""
    return None if isinstance(token, GenerateToken) else token
