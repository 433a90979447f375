"""Displays of any form: a result or a stream of events always comes to its end."""

from __future__ import annotations

import json

import httpx
import pytest

from .requesting import parse_events, run

DISPLAY = """from IPython.display import display
def nested(depth): return [nested(depth - 1)] if depth else 0
display({{"application/json": {}}}, raw=True)
print("after")"""
VALUES = {
    "900 deep": "nested(900)",
    "700 deep": "nested(700)",
    "not a number": "float('nan')",
    "a lone surrogate": "'\\ud800'",
}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@pytest.mark.parametrize("name", VALUES)
def test_runs_end_whatever_they_display(name: str, api: httpx.Client, session: str) -> None:
    body = {"code": DISPLAY.format(VALUES[name])}
    answer = api.post(f"{session}/runs", json=body)
    result = json.loads(answer.text, parse_constant=_refuse_constant)["result"]
    assert result["exit_code"] == 0
    assert result["stdout"].endswith("after\n")
    assert ("nested more than 100 deep" in result["stderr"]) == ("deep" in name)
    answer = api.post(f"{session}/runs", json={**body, "stream": True})
    assert [*parse_events(answer.iter_lines())][-1].name == "ended"
    assert run(api, session, "1")["exit_code"] == 0
