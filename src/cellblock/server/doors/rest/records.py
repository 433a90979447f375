"""The operations on records: the audit log, and what keys have used."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import describe_invalid
from ...http.services import Services
from ...owners import Owner
from ...refusals import InvalidRequest, NoRecords
from ...state.audit import AuditFilter, recent_audit
from ...state.records import AuditRecord
from ...state.usage import SECONDS_A_DAY, DailyUsage, read_usage
from .answers import answer, to_time
from .event_stream import MAX_POSITION

ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_RECORDS = 1000  # in one answer
_USAGE_DAYS = 30


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_Moment = Annotated[datetime, AfterValidator(_with_zone)]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AuditQuery(_Query):
    """Which records a client asks for."""

    since: _Moment | None = None
    until: _Moment | None = None
    key: str | None = None
    session: str | None = None
    action: str | None = None
    before: int | None = Field(default=None, ge=0, le=MAX_POSITION)
    limit: int = Field(default=100, ge=1, le=MAX_RECORDS)


class UsageQuery(_Query):
    """What usage a client asks for."""

    since: _Moment | None = None
    key: str | None = None


class AuditEntry(BaseModel):
    """Who did what, when, and how it ended. Fields that do not apply are null."""

    time: datetime = Field(description="When it began.")
    key_id: str
    key_name: str
    server: str
    door: str = Field(description="The protocol, such as `rest`; `server` if no request caused it.")
    action: str
    session: str | None
    run: str | None
    language: str | None
    outcome: str
    seconds: float
    cpu_seconds: float
    target: str | None = Field(description="The session that a fork has made.")
    size_bytes: int | None = Field(description="The bytes of an upload.")
    by_key_id: str | None = Field(
        description="The key of the administrator who has added or revoked the key."
    )

    @classmethod
    def of(cls, record: AuditRecord) -> AuditEntry:
        """Return the JSON of `record`."""
        return cls.model_validate({**asdict(record), "time": to_time(record.time)})


class AuditPage(BaseModel):
    """Records of the audit log, newest first."""

    records: list[AuditEntry]
    next_before: int | None = Field(
        description="Send it as `before` to get older records. null if there are none."
    )


class UsageEntry(BaseModel):
    """What a key has used on one day (UTC)."""

    day: date
    key_id: str
    key_name: str
    sessions: int
    runs: int
    run_seconds: float
    cpu_seconds: float

    @classmethod
    def of(cls, usage: DailyUsage) -> UsageEntry:
        """Return the JSON of `usage`."""
        day = to_time(usage.day * SECONDS_A_DAY).date()
        return cls.model_validate({**asdict(usage), "day": day})


class UsageList(BaseModel):
    """What keys have used, by day and name."""

    usage: list[UsageEntry]


class RecordOperations:
    """Show what a key has done and used. Keys of administrators see that of all keys."""

    def __init__(self, services: Services) -> None:
        self._engine = services.state

    async def list_audit(self, request: Request, owner: Owner) -> Response:
        """Answer GET audit."""
        engine, query = self._state(), _read_query(request, AuditQuery)
        chosen = AuditFilter(
            owner_id=owner.visible_key_id,
            since=_seconds(query.since),
            until=_seconds(query.until),
            key=query.key,
            session=query.session,
            action=query.action,
        )
        found = await asyncio.to_thread(
            recent_audit, engine, chosen, before=query.before, limit=query.limit + 1
        )
        shown = found[: query.limit]
        entries = [AuditEntry.of(record) for _, record in shown]
        is_last = len(found) == len(shown)
        return answer(AuditPage(records=entries, next_before=None if is_last else shown[-1][0]))

    async def list_usage(self, request: Request, owner: Owner) -> Response:
        """Answer GET usage."""
        engine, query = self._state(), _read_query(request, UsageQuery)
        since = _seconds(query.since)
        if since is None:
            since = time.time() - _USAGE_DAYS * SECONDS_A_DAY
        found = await asyncio.to_thread(
            read_usage,
            engine,
            since_day=int(since // SECONDS_A_DAY),
            key=query.key,
            owner_id=owner.visible_key_id,
        )
        return answer(UsageList(usage=list(map(UsageEntry.of, found))))

    def _state(self) -> Engine:
        if self._engine is None:
            raise NoRecords("A server without keys keeps neither usage nor log.")
        return self._engine


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _read_query(request: Request, model: type[ModelT]) -> ModelT:
    """Return the parameters of a query. Raise `InvalidRequest`."""
    try:
        return model.model_validate_strings(dict(request.query_params))
    except ValidationError as error:
        raise InvalidRequest(describe_invalid(error)) from None
