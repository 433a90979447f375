"""Judge mode in containers."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import DockerCommandLineCodeExecutor
from cellblock.batch import (
    Case,
    CheckerTests,
    FunctionTests,
    InputOutputTests,
    JudgeLimits,
    Program,
    Verdict,
    judge,
)
from tests.batch.judging import DOUBLES
from tests.batch.test_judge_hostile import IMPOSTOR, READS_TESTS, WRITES_MEMORY
from tests.containers import docker_engine

pytestmark = pytest.mark.engine

FUNCTION = FunctionTests(code=DOUBLES, entry_point="f")
PROGRAMS = {
    "right": ("def f(x): return 2 * x", FUNCTION),
    "wrong": ("def f(x): return x", FUNCTION),
    "writes the memory of the tests": (WRITES_MEMORY, FUNCTION),
    "reads the tests": (READS_TESTS, FUNCTION),
    "leaves modules": (
        IMPOSTOR,
        FunctionTests(code="import colorsys\nassert f(1) == colorsys.rgb_to_hls(0, 1, 1)"),
    ),
    "prints": ("print(int(input()) * 2)", InputOutputTests(cases=(Case("2", "4"),))),
    "is checked": (
        "print(int(input()) * 2)",
        CheckerTests(
            checker="import json, sys\nassert json.load(sys.stdin)['output'] == '4\\n'",
            cases=(Case("2"),),
        ),
    ),
}


def test_containers_judge_as_sandboxes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")

    async def verdicts() -> dict[str, Verdict]:
        async with DockerCommandLineCodeExecutor(image) as executor:
            return {
                name: await judge(executor, Program(id=name, code=code, tests=tests), JudgeLimits())
                for name, (code, tests) in PROGRAMS.items()
            }

    found = asyncio.run(verdicts())
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        "right": "passed",
        "wrong": "failed",
        "writes the memory of the tests": "failed",
        "reads the tests": "failed",
        "leaves modules": "failed",
        "prints": "passed",
        "is checked": "passed",
    }, found
