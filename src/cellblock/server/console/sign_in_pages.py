"""The pages to sign in and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ...limits import KIB
from ..refusals import NotAuthenticated
from .forms import read_form
from .gate import Gate, Visitor
from .pages import Pages, see_other

_MAX_BYTES = 8 * KIB


class SignInPages:
    """Exchange a key for a cookie. The key is in no address, page or log."""

    def __init__(self, gate: Gate, pages: Pages) -> None:
        self._gate, self._pages = gate, pages

    async def show_sign_in(self, _request: Request) -> Response:
        """Answer GET sign-in."""
        return self._form("") if self._gate.needs_keys else see_other("/")

    async def sign_in(self, request: Request) -> Response:
        """Answer POST sign-in."""
        if not self._gate.needs_keys:
            return see_other("/")
        fields, answer = await read_form(request, _MAX_BYTES), see_other("/")
        try:
            await self._gate.sign_in(request, fields.get("key", "").strip(), answer)
        except NotAuthenticated as error:
            return self._form(str(error), 403)
        return answer

    async def sign_out(self, request: Request, _visitor: Visitor) -> Response:
        """Answer POST sign-out."""
        answer = see_other("/sign-in")
        self._gate.sign_out(request, answer)
        # The back button shows no page of before.
        answer.headers["Clear-Site-Data"] = '"cache"'
        return answer

    def _form(self, problem: str, status: int = 200) -> Response:
        return self._pages.answer("sign_in.html", None, status, problem=problem)
