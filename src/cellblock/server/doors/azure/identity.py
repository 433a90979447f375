"""The identity endpoint of App Service: clients with only `DefaultAzureCredential` get a token.

With the variables IDENTITY_ENDPOINT (this URL) and IDENTITY_HEADER (an API key), the token that
they receive is that key.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...http.endpoints import json_error, log_error
from ...http.services import Services
from ...refusals import NotAuthenticated, Refusal

_TOKEN_SECONDS = 3600
_MISSING = (
    "The request has no header X-IDENTITY-HEADER. Set the variable IDENTITY_HEADER to an API key."
)


class IdentityEndpoint:
    """Answer GET /msi/token."""

    def __init__(self, services: Services) -> None:
        self._keys = services.keys

    async def __call__(self, request: Request) -> Response:
        """Return the API key in the header as an access token."""
        request.state.operation = "azure.identity"
        try:
            key, client = await self._check(request)
        except Refusal as error:
            return json_error(error)
        except Exception as error:
            log_error(request, error)
            return json_error(error)
        token = {
            "access_token": key,
            "expires_on": str(int(time.time()) + _TOKEN_SECONDS),
            "resource": request.query_params.get("resource", "https://dynamicsessions.io"),
            "token_type": "Bearer",
            "client_id": client,
        }
        return JSONResponse(token, headers={"cache-control": "no-store"})

    async def _check(self, request: Request) -> tuple[str, str]:
        key = request.headers.get("x-identity-header")
        if not key:
            raise NotAuthenticated(_MISSING)
        if self._keys is None:
            return key, "anonymous"
        return key, (await self._keys.find_owner(key)).id
