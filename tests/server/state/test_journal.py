"""The writer of usage and audit log: exactly once, bounded, and after failures."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Iterator

import pytest
from sqlalchemy import Engine, text

from cellblock.errors import BackendError
from cellblock.server.owners import Owner, Quotas
from cellblock.server.refusals import TooManyRuns
from cellblock.server.state.audit import AuditFilter, clean_up, read_audit
from cellblock.server.state.batch import Batch, write
from cellblock.server.state.database import open_database
from cellblock.server.state.journal import MAX_WAITING, StateJournal
from cellblock.server.state.records import AuditRecord, OtherSession, ServerIdentity
from cellblock.server.state.registry import NameClaim, NewSessionRow, read_others, reserve
from cellblock.server.state.usage import read_usage, today

pytestmark = pytest.mark.anyio
OWNER = Owner("abc", name="laptop")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    for thread in threading.enumerate():  # a connection in use would outlive the pool
        if thread.name.startswith("cellblock-journal"):
            thread.join()
    engine.dispose()


def _record(run: str = "1", **values: object) -> AuditRecord:
    known = {"time": time.time(), "key_id": "abc", "key_name": "laptop", "door": "rest"}
    return AuditRecord(**{**known, "action": "run", "run": run, "seconds": 0.5, **values})  # pyright: ignore[reportArgumentType]


def _runs(engine: Engine) -> list[str | None]:
    return [record.run for record in read_audit(engine, AuditFilter())]


@contextlib.asynccontextmanager
async def _failing(engine: Engine) -> AsyncGenerator[None]:
    """Let the database refuse records during the context."""
    _execute(engine, "ALTER TABLE audit RENAME TO away")
    yield
    _execute(engine, "ALTER TABLE away RENAME TO audit")


def _execute(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let the last batches take their time on a busy machine: the test's own limit is the guard."""
    monkeypatch.setattr("cellblock.server.state.journal._CLOSE", 100.0)


def test_a_batch_that_is_sent_again_is_written_once(engine: Engine) -> None:
    server, batch = ServerIdentity("one", "one", 0), Batch([_record()])
    batch.usage_of("abc", "laptop", 7).runs += 1
    for number in (1, 1, 2):
        write(engine, server, number, batch)
    assert _runs(engine) == ["1", "1"]
    assert [each.runs for each in read_usage(engine)] == [2]


async def test_leaving_writes_what_waits_with_names_that_databases_accept(
    engine: Engine,
) -> None:
    async with StateJournal(engine, "one", 1) as journal:
        for number in range(300):
            journal.add_run(_record(str(number), session="a\0b\ud800é"))
    assert _runs(engine) == [str(number) for number in range(300)]
    assert {each.session for each in read_audit(engine, AuditFilter())} == {"a\\x00b\\ud800é"}
    (used,) = read_usage(engine)
    assert (used.runs, used.run_seconds) == (300, 150.0)


async def test_records_wait_until_the_database_works_again(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async with StateJournal(engine, "one", 1) as journal:
        async with _failing(engine):
            journal.add_run(_record("1"))
            while "they cannot be written" not in caplog.text:
                await asyncio.sleep(0.01)
            journal.add_run(_record("2"))
    assert "are written again" in caplog.text
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


async def test_what_cannot_be_written_is_lost_with_a_message(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.server.state.journal._CLOSE", 0.1)

    async with StateJournal(engine, "one", 1) as journal:
        _execute(engine, "DROP TABLE audit")
        journal.add_run(_record())
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


async def test_old_records_are_removed(engine: Engine) -> None:
    now = time.time()
    write(engine, ServerIdentity("old", "old", 0), 1, Batch([
        _record("old", time=now - 2 * 86_400), _record("new", time=now)
    ]))  # fmt: skip

    async with StateJournal(engine, "one", 1):
        while len(_runs(engine)) > 1:
            await asyncio.sleep(0.01)
    assert _runs(engine) == ["new"]


def test_a_server_that_was_taken_for_dead_has_its_sessions_again(engine: Engine) -> None:
    slow, other = ServerIdentity("slow", "slow", 0), ServerIdentity("other", "other", 0)
    write(engine, slow, 1, Batch())
    write(engine, other, 1, Batch())
    reserve(engine, slow, OWNER, NewSessionRow("a", "mine", 0), 0)
    _execute(engine, "UPDATE servers SET seen_at = 0 WHERE id = 'slow'")
    clean_up(engine, other, 0)
    assert read_others(engine, "other", OWNER) == []
    write(engine, slow, 2, Batch(), {"a"})
    (found,) = read_others(engine, "other", OWNER)
    assert (found.identifier, found.server) == ("mine", "slow")


async def test_the_use_and_the_end_of_a_session_are_written(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.server.state.journal._HEARTBEAT", 0.05)

    async with StateJournal(engine, "one", 1) as journal:
        await journal.reserve(OWNER, "a", "mine", 0, 0)
        await journal.reserve(OWNER, "b", "other", 1, 0)
        journal.release("b", "deleted")
        journal.use("a", expires_at=4e9)
        (found,) = await _wait_for_use(engine)
        assert found.used_at >= found.created_at
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT ending FROM sessions ORDER BY id"))
        assert rows.scalars().all() == [None, "deleted"]


async def _wait_for_use(engine: Engine) -> list[OtherSession]:
    while not (found := read_others(engine, "another", OWNER)) or found[0].expires_at != 4e9:
        await asyncio.sleep(0.01)
    return found


@pytest.mark.postgres
def test_a_name_is_held_again_after_its_connection_was_lost(postgres_url: str) -> None:
    engine = open_database(postgres_url)
    first, second = NameClaim("one"), NameClaim("one")
    try:
        first.hold(engine)
        with pytest.raises(BackendError, match="Another server with the name 'one'"):
            second.hold(engine)
        _execute(engine, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype='advisory'")
        first.hold(engine)
        with pytest.raises(BackendError):
            second.hold(engine)
        first.release()
        second.hold(engine)
    finally:
        first.release()
        second.release()
        engine.dispose()
