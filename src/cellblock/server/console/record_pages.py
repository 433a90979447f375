"""The pages of what keys have used and done: a chart by day, and the audit log."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ..http.services import Services
from ..refusals import InvalidRequest, NoRecords
from ..state.audit import AuditFilter, recent_audit
from ..state.usage import read_usage, today
from .gate import Visitor
from .pages import Pages
from .usage_chart import MEASURES, usage_chart

_DAYS = (14, 30, 90)
_MAX_RECORDS = 100  # in a page
_MAX_DIGITS = 18


class RecordPages:
    """Show visitors the records of their key, and administrators those of all keys."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._state, self._pages = services.state, pages

    async def show_usage(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET usage."""
        if self._state is None:
            raise NoRecords("A server without keys does not count what is used.")
        measures = {each.name: each for each in MEASURES}
        measure = measures.get(request.query_params.get("measure", MEASURES[0].name))
        days = _read_number(request.query_params.get("days", str(_DAYS[0])))
        if measure is None or days not in _DAYS:
            raise InvalidRequest("There is no such chart. Choose one on the page of usage.")
        last = today()
        usage = await asyncio.to_thread(
            read_usage,
            self._state,
            since_day=last - days + 1,
            owner_id=visitor.owner.visible_key_id,
        )
        return self._pages.answer(
            "usage.html",
            visitor,
            chart=usage_chart(usage, measure, last - days + 1, last),
            measure=measure,
            measures=MEASURES,
            days=days,
            day_choices=_DAYS,
        )

    async def show_log(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET log. The query `before` is the number of the oldest record seen."""
        if self._state is None:
            raise NoRecords("A server without keys keeps no log of who has done what.")
        before = request.query_params.get("before")
        found = await asyncio.to_thread(
            recent_audit,
            self._state,
            AuditFilter(owner_id=visitor.owner.visible_key_id),
            before=None if before is None else _read_number(before),
            limit=_MAX_RECORDS + 1,
        )
        shown = found[:_MAX_RECORDS]
        return self._pages.answer(
            "log.html",
            visitor,
            records=[record for _, record in shown],
            is_newest=before is None,
            next_before=shown[-1][0] if len(found) > len(shown) else None,
        )


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidRequest("The address of the page is not valid. Choose a page above.")
    return int(text)
