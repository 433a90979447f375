"""The writer of usage and audit log: exactly once, bounded, and after failures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator

import pytest
from sqlalchemy import Engine, text

from cellblock.errors import BackendError
from cellblock.server.owners import Owner, Quotas
from cellblock.server.refusals import TooManyRuns
from cellblock.server.state.audit import read_audit
from cellblock.server.state.batch import Batch, ServerIdentity, write
from cellblock.server.state.database import open_database
from cellblock.server.state.journal import MAX_WAITING, StateJournal
from cellblock.server.state.records import AuditRecord
from cellblock.server.state.usage import read_usage, today

OWNER = Owner("abc", name="laptop")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()


def _record(run: str = "1", **values: object) -> AuditRecord:
    known = {"time": time.time(), "key_id": "abc", "key_name": "laptop", "door": "rest"}
    return AuditRecord(**{**known, "action": "run", "run": run, "seconds": 0.5, **values})  # pyright: ignore[reportArgumentType]


def _runs(engine: Engine) -> list[str | None]:
    return [record.run for record in read_audit(engine)]


@contextlib.asynccontextmanager
async def _failing(engine: Engine) -> AsyncGenerator[None]:
    """Let the database refuse records during the context."""
    _execute(engine, "ALTER TABLE audit RENAME TO away")
    yield
    _execute(engine, "ALTER TABLE away RENAME TO audit")


def _execute(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def test_a_batch_that_is_sent_again_is_written_once(engine: Engine) -> None:
    server, batch = ServerIdentity("one", "one", 0), Batch([_record()])
    batch.usage_of("abc", "laptop", 7).runs += 1
    for number in (1, 1, 2):
        write(engine, server, number, batch)
    assert _runs(engine) == ["1", "1"]
    assert [each.runs for each in read_usage(engine)] == [2]


def test_leaving_writes_what_waits(engine: Engine) -> None:
    async def check() -> None:
        async with StateJournal(engine, "one", 1) as journal:
            for number in range(300):
                journal.add_run(_record(str(number)))

    asyncio.run(check())
    assert _runs(engine) == [str(number) for number in range(300)]
    (used,) = read_usage(engine)
    assert (used.runs, used.run_seconds) == (300, 150.0)


def test_records_wait_until_the_database_works_again(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with StateJournal(engine, "one", 1) as journal:
            async with _failing(engine):
                journal.add_run(_record("1"))
                while "they cannot be written" not in caplog.text:
                    await asyncio.sleep(0.01)
                journal.add_run(_record("2"))
        assert "are written again" in caplog.text

    asyncio.run(check())
    assert _runs(engine) == ["1", "2"]
    assert [each.runs for each in read_usage(engine)] == [2]


def test_no_run_begins_that_could_not_be_recorded(engine: Engine) -> None:
    async def check() -> None:
        async with StateJournal(engine, "one", 1) as journal:
            async with _failing(engine):
                for number in range(MAX_WAITING):
                    await journal.check(OWNER)
                    journal.add_run(_record(str(number)))
                with pytest.raises(BackendError, match="does not accept the audit log"):
                    await journal.check(OWNER)

    asyncio.run(check())
    assert len(_runs(engine)) == MAX_WAITING


def test_what_cannot_be_written_is_lost_with_a_message(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.server.state.journal._CLOSE", 0.1)

    async def check() -> None:
        async with _failing(engine), StateJournal(engine, "one", 1) as journal:
            journal.add_run(_record())

    asyncio.run(check())
    assert "1 audit records are lost" in caplog.text


def test_cpu_seconds_that_wait_count_for_the_quota(engine: Engine) -> None:
    limited = Owner("abc", Quotas(cpu_seconds_a_day=1.0), name="laptop")

    async def check() -> None:
        async with StateJournal(engine, "one", 1) as journal, _failing(engine):
            for _ in range(4):
                await journal.check(limited)
                journal.add_cpu_seconds(limited, 0.25)
            with pytest.raises(TooManyRuns):
                await journal.check(limited)

    asyncio.run(check())
    assert [(each.day, each.cpu_seconds) for each in read_usage(engine)] == [(today(), 1.0)]


def test_old_records_are_removed(engine: Engine) -> None:
    now = time.time()
    write(engine, ServerIdentity("old", "old", 0), 1, Batch([
        _record("old", time=now - 2 * 86_400), _record("new", time=now)
    ]))  # fmt: skip

    async def check() -> None:
        async with StateJournal(engine, "one", 1):
            while len(_runs(engine)) > 1:
                await asyncio.sleep(0.01)

    asyncio.run(check())
    assert _runs(engine) == ["new"]


def test_names_that_no_database_accepts_are_escaped(engine: Engine) -> None:
    async def check() -> None:
        async with StateJournal(engine, "one", 1) as journal:
            journal.add_run(_record(session="a\0b\ud800é"))

    asyncio.run(check())
    assert [each.session for each in read_audit(engine)] == ["a\\x00b\\ud800é"]
