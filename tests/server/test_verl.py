"""The trainer verl judges programs on `cellblock serve`, by its own module."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
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
pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def make_judge(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Server, str], Judge]:
    """Return a function that returns a judge for a server and a key."""
    python = python_of(asyncio.run(environment_for(["requests==2.*"])))
    folder = tmp_path_factory.mktemp("verl")
    install = (find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--python", python)
    subprocess.run([*install, "--target", folder, "verl==0.9.1"], check=True, timeout=120)
    return lambda server, key: partial(_judge, python, folder, server, key)


@pytest.fixture(scope="module")
def judge(make_judge: Callable[[Server, str], Judge], server: Server, key: str) -> Judge:
    """Return a function that judges all requests at once, and returns a verdict of each."""
    return make_judge(server, key)


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


def test_each_program_gets_its_verdict(judge: Judge) -> None:
    allocate = "print(len(bytearray(300 << 20)))"
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
    ]
    assert judge(*(request for request, _ in expected)) == [verdicts for _, verdicts in expected]


def test_functions_are_called(judge: Judge) -> None:
    assert judge(
        _function("def pair(a, b): return [a, b]", "pair", ['1\n"x"'], ['[1, "x"]']),
        _function(_SOLUTION, "twice", ["2", '"ab"', "[1]"], ["4", "abab", "[1]"]),
        _function("def other(): pass", "missing", ["1"], ["1"]),
    ) == [[True], [True, True, False], [False]]


def test_completions_of_a_model_are_scored(judge: Judge) -> None:
    completion = f"I add one:\n```python\n{_ADD_ONE}\n```\nDone."
    assertions = {"assert_case": ["assert one() == 1", "assert one() == 2"]}
    assert judge(
        {"completion": completion, "test_cases": {"inputs": ["1", "2"], "outputs": ["2", "2"]}},
        {"completion": "```python\ndef one(): return 1\n```", "test_cases": assertions},
    ) == [0.5, 0.5]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_compiled_programs_get_their_verdict(judge: Judge) -> None:
    assert judge(
        _program(_CPP_ADD_ONE, ["1", "2"], ["2", "2"], language="cpp"),
        _program("int main() { return x; }", ["1", "2"], ["2", "2"], language="cpp"),
    ) == [[True, False], [COMPILE_ERROR, COMPILE_ERROR]]


def test_load_changes_no_verdict(judge: Judge) -> None:
    inputs = [str(number) for number in range(16)]
    outputs = [str(number + number % 2) for number in range(16)]  # half of them are wrong
    work = "n = int(input())\nsum(range(100_000))\nprint(n)"
    crash = f"{work}\nraise SystemExit(1)"
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        verdicts = judge(_program(work, inputs, outputs), _program(crash, inputs, outputs))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert verdicts == [[True, False] * 8, [RUNTIME_ERROR] * 16]


def test_large_output_is_compared_completely(judge: Judge) -> None:
    size = 50_000_000
    code = f"print('x' * {size - 1} + input())"
    outputs = ["x" * size, "x" * size]
    assert judge(_program(code, ["x", "y"], outputs)) == [[True, False]]


@pytest.mark.slow
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
