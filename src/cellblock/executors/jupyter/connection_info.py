"""Where a Jupyter server is, and what lets us in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class JupyterConnectionInfo:
    """Say where a Jupyter server is. The token is left out of the repr.

    host        name or address; a path may follow, where the server is not at the top: "hub.example/user/me"
    use_https   whether the way there is encrypted
    port        None: the scheme's own
    token       None: the server asks for none
    """

    host: str
    use_https: bool
    port: int | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not self.host or "://" in self.host:  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(
                f"host must be a name or an address without a scheme, not {self.host!r}; see from_url."
            )
        if any(character in self.host for character in "@?#"):
            raise ValueError(
                "host must not hold a user, a query or a fragment: give the token as token."
            )

    @classmethod
    def from_url(cls, url: str, token: str | None = None) -> JupyterConnectionInfo:
        """Make it from a URL as `jupyter server list` prints it, with the token in it or apart."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "The URL of a Jupyter server begins with http:// or https:// and a host."
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        found = parse_qs(parts.query).get("token", [None])[0]
        return cls(
            host + parts.path.rstrip("/"), parts.scheme == "https", parts.port, token or found
        )

    @property
    def url(self) -> str:
        """The server's address, without the token."""
        host, slash, path = self.host.partition("/")
        port = "" if self.port is None else f":{self.port}"
        return f"{'https' if self.use_https else 'http'}://{host}{port}{slash}{path.rstrip('/')}"


@runtime_checkable
class JupyterConnectable(Protocol):
    """Something that knows a Jupyter server."""

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where the server is."""
        ...
