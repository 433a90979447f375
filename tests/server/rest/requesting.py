"""Run code, read events, and wait for a state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

# One write, so that the first output event has the whole line.
FOREVER = "import os, signal\n_ = os.write(1, b'begun\\n')\nwhile True: signal.pause()"


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event. `number` is None if it has no `id`."""

    name: str
    data: dict[str, Any]
    number: int | None


def run(client: httpx.Client, path: str, code: str, **body: Any) -> dict[str, Any]:
    """Run code below `path` and return the result."""
    answer = client.post(f"{path}/runs", json={"code": code, **body})
    assert answer.status_code == 200, answer.text
    info = answer.json()
    assert info["status"] == "ended"
    return info["result"]


def start(client: httpx.Client, path: str, code: str) -> str:
    """Start a run in the background and return the path of the run."""
    answer = client.post(f"{path}/runs", json={"code": code, "background": True})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/runs/{answer.json()['id']}"
    return f"/runs/{answer.json()['id']}"


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Yield the events in the lines of an answer."""
    fields = dict[str, str]()
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            number = int(fields["id"]) if "id" in fields else None
            yield ServerEvent(fields["event"], json.loads(fields["data"]), number)
            fields = {}


def wait_for(condition: Callable[[], Any]) -> Any:
    """Return the first true value of `condition`."""
    while not (found := condition()):
        time.sleep(0.03)
    return found
