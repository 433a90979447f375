"""The pages of usage and of the log: what they count, and for whom."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import insert

from cellblock.server.console.pages import Filters
from cellblock.server.console.usage_chart import MEASURES, usage_chart
from cellblock.server.state.audit import AuditFilter, recent_audit
from cellblock.server.state.database import open_database
from cellblock.server.state.records import AuditRecord
from cellblock.server.state.tables import AuditRow
from cellblock.server.state.usage import DailyUsage

from ..rest.requesting import wait_for
from ..serving import Server
from .visiting import run, text_of, visiting

_CPU, _RUNS, _ = MEASURES


def _usage(key: str, day: int, cpu_seconds: float = 0.0, runs: int = 1) -> DailyUsage:
    return DailyUsage(
        key_id=key, key_name=f"key {key}", day=day, runs=runs, cpu_seconds=cpu_seconds
    )


def test_columns_have_a_part_for_each_key_and_reach_round_amounts() -> None:
    usage = [_usage("a", 2, 1.0), _usage("b", 2, 3.5), _usage("b", 1, 1.0)]
    chart = usage_chart(usage, _CPU, first_day=0, last_day=2)
    assert [(each.day.isoformat(), each.label, each.total) for each in chart.columns] == [
        ("1970-01-01", "01-01", "0.0"), ("1970-01-02", "01-02", "1.0"),
        ("1970-01-03", "01-03", "4.5"),
    ]  # fmt: skip
    assert [tick.label for tick in chart.ticks] == ["0", "1", "2", "3", "4", "5"]
    heights = {part.key_name: part.height for part in chart.columns[2].parts}
    second = chart.ticks[1].top - chart.ticks[2].top
    assert heights == pytest.approx({"key b": 3.5 * second, "key a": second})
    below, above = chart.columns[2].parts
    assert above.top + above.height == pytest.approx(below.top)
    assert below.top + below.height == pytest.approx(chart.bottom)
    assert [(each.key_name, each.runs, each.cpu_seconds) for each in chart.totals] == [
        ("key b", 2, 4.5), ("key a", 1, 1.0),
    ]  # fmt: skip


def test_days_without_usage_are_empty_and_keys_beyond_the_colours_share_the_last_one() -> None:
    assert usage_chart([_usage("a", 0)], _CPU, 0, 0).columns[0].parts[0].height == 0.0
    empty = usage_chart([], _CPU, 0, 89)
    assert empty.totals == []
    assert [tick.label for tick in usage_chart([_usage("a", 0)], _RUNS, 0, 0).ticks] == ["0", "1"]
    assert sum(each.label != "" for each in empty.columns) == 8
    usage = [_usage(str(number), 0, runs=100 - number) for number in range(10)]
    chart = usage_chart(usage, _RUNS, 0, 0)
    assert [each.colour for each in chart.totals] == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]


def test_the_newest_records_come_first_and_older_ones_after_them(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/server.db")
    with engine.begin() as connection:
        for number in range(5):
            record = AuditRecord(
                time=0.0, key_id="ab"[number % 2], key_name="", door="", action=str(number)
            )
            connection.execute(insert(AuditRow).values(**asdict(record)))
    newest = recent_audit(engine, AuditFilter(), before=None, limit=2)
    older = recent_audit(engine, AuditFilter(), before=newest[-1][0], limit=9)
    own = recent_audit(engine, AuditFilter(owner_id="b"), before=None, limit=9)
    engine.dispose()
    assert [record.action for _, record in newest] == ["4", "3"]
    assert [record.action for _, record in older] == ["2", "1", "0"]
    assert [record.action for _, record in own] == ["3", "1"]


def test_a_key_sees_its_own_usage_and_log(server: Server) -> None:
    names = ("records <b>one</b>", "records two")
    with (
        visiting(server, server.add_key(names[0])) as one,
        visiting(server, server.add_key(names[1])) as two,
    ):
        run(one, "/runs", "print('secret code')", place="fresh")
        log = wait_for(lambda: _if_contains(one.get("/log"), '"Action">run<'))
        usage = wait_for(lambda: _if_contains(one.get("/usage"), "<rect"))
        assert ">console<" in log
        assert "secret" not in log + usage
        assert "records &lt;b&gt;one&lt;/b&gt;" in usage
        assert names[1] not in usage + log
        assert "<rect" not in two.get("/usage").text
        assert '"Action">run<' not in two.get("/log").text
        assert "Run seconds by day" in one.get("/usage?measure=time&days=90").text


def test_a_long_log_has_pages_and_a_filter(server: Server) -> None:
    key = server.add_key("long log")
    info = next(each for each in server.keys.list_keys() if each.name == "long log")
    first, third = (datetime.now(UTC).date() - timedelta(days) for days in (10, 8))
    midnight = datetime.combine(first, time(), UTC).timestamp()
    records = [
        AuditRecord(
            time=midnight + 86_400 * (number % 3),
            key_id=info.id,
            key_name=info.name,
            door="rest",
            action=("run", "restart")[number % 2],
            session=f"100%-{number}" if number < 110 else None,
        )
        for number in range(250)
    ]
    engine = open_database(server.database)
    with engine.begin() as connection:
        connection.execute(insert(AuditRow), [asdict(record) for record in records])
    engine.dispose()
    with visiting(server, key) as client:
        wait_for(lambda: _if_contains(client.get("/log"), '"Action">sign-in<'))
        last = client.get("/log?page=3")
        assert "201 to 252 of 252 records" in text_of(last)
        assert ">100%-0<" in last.text
        for query, count in {
            "text=100%25-10": 11,
            "text=100_": 0,
            "action=restart": 125,
            f"action=restart&text=100%25&since={first}&until={first}": 18,
            f"since={third}": 85,
        }.items():
            assert f"{count} records found" in text_of(client.get(f"/log?{query}")), query
        link = 'href="?text=100%25&amp;page=2"'
        assert link in client.get("/log?text=100%25").text


def test_pages_of_a_list() -> None:
    places = [(Filters({}, number).of(251, 100)) for number in (1, 3, 9)]
    assert [(each.number, each.start, each.pages) for each in places] == [
        (1, 0, 3), (3, 200, 3), (3, 200, 3),
    ]  # fmt: skip
    assert Filters({}, 1).of(0, 100).pages == 1


def _if_contains(answer: httpx.Response, part: str) -> str:
    return answer.text if part in answer.text else ""


def test_addresses_that_are_not_valid_are_refused(visitor: httpx.Client) -> None:
    paths = (
        "/usage?days=1",
        "/usage?measure=x",
        "/log?page=-1",
        "/log?since=x",
        "/sessions?page=x",
    )
    for path in paths:
        answer = visitor.get(path)
        assert answer.status_code == 400, path
        assert "Choose" in text_of(answer)
