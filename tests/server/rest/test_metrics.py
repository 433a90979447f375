"""Metrics for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ..serving import Server, serving
from .requesting import FOREVER, run, start, wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server of which nobody else uses sessions."""
    with serving(tmp_path_factory.mktemp("server")) as one:
        yield one


def _values(client: httpx.Client) -> dict[tuple[str, str], float]:
    """Return the values of all metrics by name and operation, summed over other labels."""
    found = dict[tuple[str, str], float]()
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            place = sample.name, sample.labels.get("operation", "")
            found[place] = found.get(place, 0.0) + sample.value
    return found


def test_metrics_count_sessions_runs_and_requests(
    server: Server, key: str, api: httpx.Client, session: str
) -> None:
    with server.client(key) as client:
        before = _values(client)
        assert before["cellblock_sessions", ""] == 1
        paths = [start(api, session, FOREVER) for _ in range(2)]
        wait_for(lambda: _values(client)["cellblock_runs_active", ""] == 1)
        assert _values(client)["cellblock_runs_waiting", ""] == 1
        for path in paths:
            api.post(f"{path}/cancel")
        after = _values(client)
        assert after["cellblock_runs_active", ""] == 0
        name = "cellblock_requests_total", "rest.run_in_session"
        assert after[name] - before.get(name, 0) == 2
        assert after["cellblock_request_seconds_count", "rest.cancel_run"] >= 2
        assert after["process_resident_memory_bytes", ""] > 0


def test_metrics_count_runs_by_outcome_and_their_time_in_the_queue(
    server: Server, key: str, api: httpx.Client, session: str
) -> None:
    def runs() -> Counter[str]:
        families = text_string_to_metric_families(api.get(f"{server.url}/metrics").text)
        samples = [sample for family in families for sample in family.samples]
        found = Counter(
            {
                sample.labels["outcome"]: int(sample.value)
                for sample in samples
                if sample.name == "cellblock_runs_total"
            }
        )
        (queued,) = (s.value for s in samples if s.name == "cellblock_queue_seconds_count")
        assert queued == found.total()
        return found

    before = runs()
    for code, seconds in (("1", 10), ("1", 10), ("1/0", 10), ("while True: pass", 0.2)):
        run(api, session, code, timeout_seconds=seconds)
    assert runs() - before == {"ok": 2, "error": 1, "timeout": 1}
    # A program of a trainer.
    with server.client(key) as client:
        client.post("/run_code", json={"code": "print(1)", "language": "python"})
    assert (runs() - before)["ok"] == 3


def test_metrics_need_a_key(server: Server) -> None:
    with server.client(None) as client:
        assert client.get("/metrics").status_code == 401


def test_made_up_methods_and_paths_add_no_metrics(server: Server, key: str) -> None:
    with server.client(key) as client:
        for number in range(5):
            client.request(f"MADEUP{number}", f"/made/up/{number}")
        text = client.get("/metrics").text
        assert 'method="other"' in text
        assert "MADEUP" not in text
        assert "/made" not in text
