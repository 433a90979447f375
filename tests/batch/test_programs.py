"""Programs and verdicts as lines of JSON, and a first batch."""

from __future__ import annotations

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
)
from tests.batch.runs import judge_all

_CASES = (Case("1\n", "2\n"), Case("", ""))


TESTS: list[Tests | None] = [
    None,
    InputOutputTests(cases=_CASES, compare="tokens"),
    FunctionTests(code="assert f(1) == 2"),
    FunctionTests(code="def check(f): ...", entry_point="f"),
    CheckerTests(checker="pass", cases=_CASES),
]


def test_programs_and_verdicts_survive_json() -> None:
    for tests in TESTS:
        program = Program(id="é", code="a\nb", files={"x/y.txt": "1"}, stdin="s", tests=tests)
        assert "\n" not in program.to_json()
        assert Program.from_json(program.to_json()) == program
    cases = (CaseResult(outcome="passed"), CaseResult(outcome="failed", output="1", message="no"))
    verdict = Verdict(id="a", outcome="failed", output="x\ny", cases=cases, cpu_seconds=0.5)
    assert Verdict.from_json(verdict.to_json()) == verdict


BAD_LINES = {
    "{": "not JSON",
    "[1]": "must be a JSON object",
    '{"id": "a"}': "'a' needs \"code\"",
    '{"id": 1, "code": ""}': 'needs "id", a string',
    '{"id": "a", "code": "", "test": 1}': "unknown keys: test. Known are code, files",
    '{"id": "a", "code": "", "files": {"x": 1}}': "x must be a string, not 1",
    '{"id": "a", "code": "", "tests": {"cases": []}}': "at least one case",
    '{"id": "a", "code": "", "tests": {"cases": [{"in": 1}]}}': "unknown keys: in",
    '{"id": "a", "code": "", "tests": {"cases": [{}], "compare": "x"}}': "exact, lines",
}


def test_bad_lines_are_refused_and_say_what_is_wrong() -> None:
    for line, message in BAD_LINES.items():
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
    verdicts = judge_all([Program(id="a", code="print(1)"), Program(id="b", code="1 / 0")])
    found = [(each.id, each.passed, each.exit_code) for each in verdicts]
    assert found == [("a", True, 0), ("b", False, 1)]
    assert verdicts[0].output == "1\n"
