"""AccessToken: the bearer token of a credential, renewed before it expires."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from typing import Any, Protocol, cast

from ...errors import ServiceError

SCOPE = "https://dynamicsessions.io/.default"
_RENEWAL_SECONDS = 300.0  # before its expiry, a token is replaced


class Credential(Protocol):
    """A credential as `azure.identity` and `azure.identity.aio` have them."""

    def get_token(self, *scopes: str) -> Any:
        """Return an object with `token` and `expires_on` (Unix time), or an awaitable of one."""
        ...


class AccessToken:
    """The token of `credential`; a string is itself the token. None: `DefaultAzureCredential`."""

    def __init__(self, credential: Credential | str | None) -> None:
        self._credential = credential
        self._token, self._renew_at = "", 0.0

    async def get(self) -> str:
        """Return a valid token. Raise `ServiceError` if the credential has none."""
        if isinstance(self._credential, str):
            return self._credential
        if not self._token or time.time() >= self._renew_at:
            await self._renew(self._credential or _default_credential())
        return self._token

    def discard(self) -> bool:
        """Forget a token that the service refused. Return False if there can be no other."""
        self._token = ""
        return not isinstance(self._credential, str)

    async def _renew(self, credential: Credential) -> None:
        self._credential = credential
        try:
            answer = await _call(credential)
            token, expires_on = str(answer.token), float(answer.expires_on)
        except Exception as error:  # each kind of credential raises other errors
            raise ServiceError(
                f"{type(credential).__name__} returned no token for {SCOPE}: {error}"
            ) from error
        self._token, self._renew_at = token, expires_on - _RENEWAL_SECONDS


async def _call(credential: Credential) -> Any:
    """Call `get_token`: in a thread if it may block."""
    if inspect.iscoroutinefunction(credential.get_token):
        return await credential.get_token(SCOPE)
    answer = await asyncio.to_thread(credential.get_token, SCOPE)
    return await answer if inspect.isawaitable(answer) else answer


def _default_credential() -> Credential:
    with contextlib.suppress(ImportError):
        from azure.identity import DefaultAzureCredential  # an extra

        return cast(Credential, DefaultAzureCredential())
    raise ServiceError(
        "Without credential=, azure-identity must be installed: pip install 'cellblock[azure]'."
    )
