"""Programs and verdicts as lines of JSON, and a first batch."""

from __future__ import annotations

import asyncio

import pytest

from cellblock.batch import (
    Case,
    CaseResult,
    CheckerTests,
    FunctionTests,
    InputOutputTests,
    JudgeLimits,
    Program,
    Tests,
    Verdict,
    run_many,
)
from tests.executors.session.live_session import skip_without_sandbox

_CASES = (Case("1\n", "2\n"), Case("", ""))


@pytest.mark.parametrize(
    "tests",
    [
        None,
        InputOutputTests(cases=_CASES, compare="tokens"),
        FunctionTests(code="assert f(1) == 2"),
        FunctionTests(code="def check(f): ...", entry_point="f"),
        CheckerTests(checker="pass", cases=_CASES),
    ],
)
def test_program_survives_json(tests: Tests | None) -> None:
    program = Program(id="é", code="a\nb", files={"x/y.txt": "1"}, stdin="s", tests=tests)
    assert "\n" not in program.to_json()
    assert Program.from_json(program.to_json()) == program


def test_verdict_survives_json() -> None:
    cases = (CaseResult(outcome="passed"), CaseResult(outcome="failed", output="1", message="no"))
    verdict = Verdict(id="a", outcome="failed", output="x\ny", cases=cases, cpu_seconds=0.5)
    assert Verdict.from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"id": "a"}', "'a' needs \"code\""),
        ('{"id": 1, "code": ""}', 'needs "id", a string'),
        ('{"id": "a", "code": "", "test": 1}', "unknown keys: test. Known are code, files"),
        ('{"id": "a", "code": "", "files": {"x": 1}}', "x must be a string, not 1"),
        ('{"id": "a", "code": "", "tests": {"cases": []}}', "at least one case"),
        ('{"id": "a", "code": "", "tests": {"cases": [{"in": 1}]}}', "unknown keys: in"),
        ('{"id": "a", "code": "", "tests": {"cases": [{}], "compare": "x"}}', "exact, lines"),
    ],
)
def test_bad_line_is_refused_and_says_what_is_wrong(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Program.from_json(line)


def test_digest_depends_on_program_tests_and_limits() -> None:
    program, limits = Program(id="a", code="1"), JudgeLimits()
    tests = FunctionTests(code="1")
    digests = {
        program.digest(limits),
        program.digest(JudgeLimits(cpu_seconds=1)),
        Program(id="a", code="2").digest(limits),
        Program(id="a", code="1", tests=tests).digest(limits),
    }
    assert len(digests) == 4
    assert Program(id="a", code="1").digest(JudgeLimits()) == program.digest(limits)


def test_batch_says_what_became_of_each_program() -> None:
    async def judge_all() -> list[Verdict]:
        return [verdict async for verdict in run_many(programs)]

    skip_without_sandbox()
    programs = [Program(id="a", code="print(1)"), Program(id="b", code="1 / 0")]
    verdicts = asyncio.run(judge_all())
    assert [(each.id, each.passed, each.exit_code) for each in verdicts] == [
        ("a", True, 0),
        ("b", False, 1),
    ]
    assert verdicts[0].output == "1\n"
