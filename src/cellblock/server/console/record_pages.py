"""The pages of what keys have used and done: a chart by day, and the audit log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import Response

from ..http.services import Services
from ..refusals import InvalidRequest, NoRecords
from ..state.audit import AuditFilter, count_audit, recent_audit
from ..state.records import ACTIONS, AuditRecord
from ..state.usage import SECONDS_A_DAY, read_usage, today
from .gate import Visitor
from .pages import Filters, Pages, Paging, read_number
from .usage_chart import MEASURES, usage_chart

_DAYS = (14, 30, 90)
_MAX_RECORDS = 100  # in a page


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
        days = read_number(request.query_params.get("days", str(_DAYS[0])))
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
        """Answer GET log: a page of the records, newest first, that the form above chooses."""
        if self._state is None:
            raise NoRecords("A server without keys keeps no log of who has done what.")
        filters = Filters.read(request, "text", "action", "since", "until")
        paging, records = await asyncio.to_thread(_read_log, self._state, visitor, filters)
        return self._pages.answer(
            "log.html", visitor, records=records, paging=paging, filters=filters, actions=ACTIONS
        )


def _read_log(
    state: Engine, visitor: Visitor, filters: Filters
) -> tuple[Paging, list[AuditRecord]]:
    chosen = AuditFilter(
        owner_id=visitor.owner.visible_key_id,
        since=_read_day(filters, "since", 0),
        until=_read_day(filters, "until", 1),
        action=filters.get("action") or None,
        text=filters.get("text") or None,
    )
    paging = filters.of(count_audit(state, chosen), _MAX_RECORDS)
    found = recent_audit(state, chosen, skip=paging.start, limit=paging.size)
    return paging, [record for _, record in found]


def _read_day(filters: Filters, name: str, later: int) -> float | None:
    """Return the start of a day in a filter, or of the day after it, in seconds since 1970."""
    if not (text := filters.get(name)):
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidRequest(
            f"The field {name!r} must be a day such as 2026-01-31. Choose another one."
        ) from None
    return day.timestamp() + later * SECONDS_A_DAY
