"""Live output as server-sent events: order, resumption, readers that leave or are slow."""

from __future__ import annotations

from itertools import takewhile

import httpx

from ..serving import Server
from .requesting import FOREVER, ServerEvent, parse_events, run, start, wait_for

_TICKS = "import time\nfor n in range(20):\n    print(n, flush=True)\n    time.sleep(0.01)"


def _all_events(
    client: httpx.Client, path: str, headers: dict[str, str] | None = None
) -> list[ServerEvent]:
    answer = client.get(path, headers=headers or {})
    assert answer.headers["content-type"].startswith("text/event-stream")
    return list(parse_events(answer.iter_lines()))


def _text(events: list[ServerEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "output")


def test_events_come_while_the_code_runs(api: httpx.Client, session: str) -> None:
    body = {"code": FOREVER, "stream": True}
    with api.stream("POST", f"{session}/runs", json=body) as answer:
        events = parse_events(answer.iter_lines())
        first = next(events)
        before = [first, *takewhile(lambda event: event.name != "output", events)]
        assert [event.name for event in before] == ["run", "started"]
        assert api.get(f"/runs/{first.data['id']}").json()["status"] == "running"
        api.post(f"/runs/{first.data['id']}/cancel")
        last = list(events)[-1]
    assert (last.name, last.data["outcome"]) == ("ended", "cancelled")


def test_events_have_all_that_the_code_did(api: httpx.Client, session: str) -> None:
    code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\nopen('f', 'w').write('hi')\n6 * 7"
    answer = api.post(f"{session}/runs", json={"code": code, "stream": True})
    events = list(parse_events(answer.iter_lines()))
    numbers = [event.number or 0 for event in events[1:]]
    assert numbers == sorted(set(numbers))
    found = [(event.name, event.data) for event in events[1:-1]]
    texts = {"stdout": "", "stderr": ""}
    for name, data in found:
        if name == "output":
            texts[data["stream"]] += data["text"]
    assert texts == {"stdout": "a\n42\n", "stderr": "b\n"}
    assert ("display", {"data": {"text/plain": "42"}, "metadata": {}}) in found
    assert ("file", {"path": "f", "size_bytes": 2}) in found
    assert (events[-1].name, events[-1].data["exit_code"]) == ("ended", 0)


def test_a_reader_resumes_after_the_last_event_that_it_has(api: httpx.Client, session: str) -> None:
    path = start(api, session, _TICKS)
    with api.stream("GET", f"{path}/events") as answer:
        events = parse_events(answer.iter_lines())
        seen = [event for event, _ in zip(events, range(6), strict=False)]
    last = str(seen[-1].number)
    rest = _all_events(api, f"{path}/events", {"Last-Event-ID": last})
    assert _text(seen) + _text(rest) == "".join(f"{n}\n" for n in range(20))
    assert rest[-1].name == "ended"
    again = _all_events(api, f"{path}/events?after={last}")
    assert _text(again) == _text(rest)


def test_there_is_no_content_after_the_last_event_and_other_positions_are_refused(
    api: httpx.Client, session: str
) -> None:
    path = start(api, session, "1")
    last = _all_events(api, f"{path}/events")[-1]
    answer = api.get(f"{path}/events", headers={"Last-Event-ID": str(last.number)})
    assert (answer.status_code, answer.content) == (204, b"")
    for position in ("x", "-1", "1.5", "9" * 30, "\u00b2".encode().decode("latin-1")):
        answer = api.get(f"{path}/events", headers={b"Last-Event-ID": position.encode()})
        assert answer.status_code == 400, position


def test_a_streamed_run_survives_a_lost_connection(api: httpx.Client, session: str) -> None:
    body = {"code": _TICKS, "stream": True}
    with api.stream("POST", f"{session}/runs", json=body) as answer:
        events = parse_events(answer.iter_lines())
        seen = [event for event, _ in zip(events, range(4), strict=False)]
    path = f"/runs/{seen[0].data['id']}/events"
    rest = _all_events(api, path, {"Last-Event-ID": str(seen[-1].number)})
    assert _text(seen) + _text(rest) == "".join(f"{n}\n" for n in range(20))
    assert rest[-1].data["outcome"] == "ok"


def test_a_streamed_run_without_readers_is_cancelled(api: httpx.Client, session: str) -> None:
    with api.stream("POST", f"{session}/runs", json={"code": FOREVER, "stream": True}) as answer:
        first = next(parse_events(answer.iter_lines()))
    path = f"/runs/{first.data['id']}"
    assert api.get(path).json()["status"] == "running"
    wait_for(lambda: api.get(path).json()["status"] == "ended")
    assert api.get(path).json()["result"]["outcome"] == "cancelled"


def test_a_slow_reader_does_not_hold_up_the_run(
    server: Server, key: str, api: httpx.Client, session: str
) -> None:
    code = "for _ in range(4000): print('x' * 200)"
    body = {"code": code, "stream": True}
    with server.client(key, "/v1") as slow:
        with slow.stream("POST", f"{session}/runs", json=body) as answer:
            first = next(parse_events(answer.iter_lines()))
            wait_for(lambda: api.get(f"/runs/{first.data['id']}").json()["status"] == "ended")
            assert run(api, session, "print('free')")["stdout"] == "free\n"
    result = api.get(f"/runs/{first.data['id']}").json()["result"]
    assert result["stdout"] == ("x" * 200 + "\n") * 4000
    assert _text(_all_events(api, f"/runs/{first.data['id']}/events")) == result["stdout"]


def test_two_readers_have_the_same_events(server: Server, key: str, api: httpx.Client) -> None:
    answer = api.post("/runs", json={"code": _TICKS, "background": True})
    path = f"/runs/{answer.json()['id']}/events"
    with server.client(key, "/v1") as other, api.stream("GET", path) as one:
        with other.stream("GET", path) as two:
            first, second = (list(parse_events(each.iter_lines())) for each in (one, two))
    assert _text(first) == _text(second) == "".join(f"{n}\n" for n in range(20))
