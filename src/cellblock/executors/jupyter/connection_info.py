"""JupyterConnectionInfo: the address and the token of a Jupyter server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class JupyterConnectionInfo:
    """The address and the token of a Jupyter server. The repr does not show the token.

    host        name or address, and the path if the server has one: "hub.example/user/me"
    use_https   whether to use HTTPS
    port        None: the default port of the scheme
    token       None: the server needs no token
    """

    host: str
    use_https: bool
    port: int | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not self.host or "://" in self.host:  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(
                f"host must be a name or an address without a scheme, not {self.host!r}. "
                "For a URL, use JupyterConnectionInfo.from_url."
            )
        if any(character in self.host for character in "@?#"):
            raise ValueError(
                "host must not contain a user, a query or a fragment. Pass the token as token=..."
            )

    @classmethod
    def from_url(cls, url: str, token: str | None = None) -> JupyterConnectionInfo:
        """Return the connection info for a URL as `jupyter server list` prints it.

        `token` overrides the token in the URL. Raise `ValueError` if the URL is not one of HTTP.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "The URL of a Jupyter server must begin with http:// or https:// and a host."
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        found = parse_qs(parts.query).get("token", [None])[0]
        return cls(
            host + parts.path.rstrip("/"), parts.scheme == "https", parts.port, token or found
        )

    @property
    def url(self) -> str:
        """The base URL of the server, without the token."""
        host, slash, path = self.host.partition("/")
        port = "" if self.port is None else f":{self.port}"
        return f"{'https' if self.use_https else 'http'}://{host}{port}{slash}{path.rstrip('/')}"


@runtime_checkable
class JupyterConnectable(Protocol):
    """An object that knows the address of a Jupyter server."""

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """The address and the token of the server."""
        ...
