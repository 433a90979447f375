"""The trainer verl judges programs on `cellblock serve`, by its own module."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from cellblock.environments.virtualenv import environment_for, python_of

from .serving import Server, serving

Judge = Callable[..., list[Any]]
# verl's verdicts are True and False for right and wrong output, and these:
API_ERROR, RUNTIME_ERROR, TIMEOUT, COMPILE_ERROR = -1, -2, -3, -4

_SCENARIO = Path(__file__).parent / "scenarios" / "verl_call.py"
_ADD_ONE = "print(int(input()) + 1)"
_CPP_ADD_ONE = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n + 1; }"
_SOLUTION = "class Solution:\n    def twice(self, item): return item * 2"
pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def make_judge(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Server, str], Judge]:
    """Return a function that returns a judge for a server and a key.

    A judge is a function that judges all requests at once, and returns a verdict of each.
    """
    python = python_of(asyncio.run(environment_for(["requests==2.*"])))
    folder = tmp_path_factory.mktemp("verl")
    install = (find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--python", python)
    subprocess.run([*install, "--target", folder, "verl==0.9.1"], check=True, timeout=120)
    return lambda server, key: partial(_judge, python, folder, server, key)


def _judge(
    python: Path, folder: Path, server: Server, key: str, *requests: dict[str, Any]
) -> list[Any]:
    url = server.url.replace("://", f"://cellblock:{key}@") + "/run_code"
    done = subprocess.run(
        [python, _SCENARIO, folder, url],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _program(code: str, inputs: list[Any], outputs: list[Any], **more: Any) -> dict[str, Any]:
    return {"generation": code, "in_outs": {"inputs": inputs, "outputs": outputs}, **more}


def _function(code: str, name: str, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
    tests = {"fn_name": name, "inputs": inputs, "outputs": outputs}
    return {"generation": code, "in_outs": tests}


def test_programs_functions_and_completions_get_their_verdicts(
    make_judge: Callable[[Server, str], Judge], server: Server, key: str
) -> None:
    allocate = "print(len(bytearray(300 << 20)))"
    completion = f"I add one:\n```python\n{_ADD_ONE}\n```\nDone."
    assertions = {"assert_case": ["assert one() == 1", "assert one() == 2"]}
    expected: list[tuple[dict[str, Any], Any]] = [
        (_program(_ADD_ONE, ["1", "2", "5"], ["2", "3\n", "7"]), [True, True, False]),
        (_program("print(2)", [None], [None]), [True]),
        (_program("print(1 / 0)", ["1"], ["2"]), [RUNTIME_ERROR]),
        (_program("print(", ["1"], ["2"]), [RUNTIME_ERROR]),
        (_program("import os; os.kill(os.getpid(), 9)", ["1"], ["2"]), [RUNTIME_ERROR]),
        (_program("print(2, flush=True)\nwhile True: pass", ["1"], ["2"], timeout=1), [TIMEOUT]),
        (_program(allocate, ["1"], ["314572800"]), [True]),
        (_program(allocate, ["1"], ["314572800"], memory_limit_mb=128), [RUNTIME_ERROR]),
        (_program("print(1)", ["1"], ["1"], language="lean"), [API_ERROR]),
        (_function("def pair(a, b): return [a, b]", "pair", ['1\n"x"'], ['[1, "x"]']), [True]),
        (
            _function(_SOLUTION, "twice", ["2", '"ab"', "[1]"], ["4", "abab", "[1]"]),
            [True, True, False],
        ),
        (_function("def other(): pass", "missing", ["1"], ["1"]), [False]),
        (
            {"completion": completion, "test_cases": {"inputs": ["1", "2"], "outputs": ["2", "2"]}},
            0.5,
        ),
        ({"completion": "```python\ndef one(): return 1\n```", "test_cases": assertions}, 0.5),
    ]
    if shutil.which("g++"):
        bad = "int main() { return x; }"
        expected += [
            (_program(_CPP_ADD_ONE, ["1", "2"], ["2", "2"], language="cpp"), [True, False]),
            (_program(bad, ["1", "2"], ["2", "2"], language="cpp"), [COMPILE_ERROR] * 2),
        ]
    judge = make_judge(server, key)
    assert judge(*(request for request, _ in expected)) == [verdicts for _, verdicts in expected]


def test_a_program_that_waits_longer_than_verl_does_gets_its_verdict(
    make_judge: Callable[[Server, str], Judge], tmp_path: Path
) -> None:
    """verl stops waiting 10 s after its two limits, and tries again only after a status 504."""
    count = 14
    with serving(tmp_path, "--max-running", "1") as server:
        judge = make_judge(server, server.add_key("verl"))
        program = _program("while True: pass", ["1"] * count, ["2"] * count, timeout=1)
        assert judge(program) == [[TIMEOUT] * count]
        assert any('"status": 504' in line for line in server.lines)
