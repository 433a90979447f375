"""Cases with standard input and output, and checkers."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from cellblock import Limits, SandboxCommandLineCodeExecutor
from cellblock.batch import (
    Case,
    CheckerTests,
    InputOutputTests,
    JudgeLimits,
    Program,
    Verdict,
    judge,
)
from cellblock.batch.cases import find_difference
from cellblock.batch.tests import Comparison
from cellblock.errors import BackendError
from tests.batch.judging import Judging

TWICE = (Case("2\n", "4\n"), Case("3\n", "6"))
IN_PYTHON = "print(int(input()) * 2)"


COMPARISONS: list[tuple[Comparison, str, str, str]] = [
    ("exact", "a\n", "a\n", ""),
    ("exact", "a\n", "a", "line 2 should be '', but is missing"),
    ("exact", "a", "a ", "line 1 should be 'a', but is 'a '"),
    ("lines", "a \nb\n\n", "a\nb", ""),
    ("lines", "", "\n", ""),
    ("lines", "a\n\nb", "a\nb", "line 2 should be '', but is 'b'"),
    ("lines", " a", "a", "line 1 should be ' a', but is 'a'"),
    ("tokens", "1  2\n3", "1 2 3\n", ""),
    ("tokens", "1 2", "12", "word 1 should be '1', but is '12'"),
    ("tokens", "1 2", "1", "word 2 should be '2', but is missing"),
]


def test_comparisons_name_the_first_difference() -> None:
    found = [(*each[:3], find_difference(*each[:3])) for each in COMPARISONS]
    assert found == COMPARISONS


IN_C = '#include <stdio.h>\nint main() { int x; scanf("%d", &x); printf("%d\\n", x * 2); }'
LANGUAGES = {
    "python": ("", IN_PYTHON),
    "sh": ("", "read x; echo $((x * 2))"),
    "bash": ("", "read x; echo $((x * 2))"),
    "javascript": ("node", "console.log(parseInt(require('fs').readFileSync(0)) * 2)"),
    "c": ("gcc", IN_C),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages(judging: Judging, language: str) -> None:
    program, code = LANGUAGES[language]
    if program and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    verdict = judging.judge(code, InputOutputTests(cases=TWICE), language=language)
    found = [(case.outcome, case.output) for case in verdict.cases]
    assert found == [("passed", "4\n"), ("passed", "6\n")], verdict
    assert verdict.passed
    wrong = InputOutputTests(cases=(Case("2", "5"),))
    assert not judging.judge(code, wrong, language=language).passed


def test_program_that_does_not_compile_is_an_error(judging: Judging) -> None:
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    verdict = judging.judge("int main() {", InputOutputTests(cases=TWICE), language="c")
    assert (verdict.outcome, verdict.cases) == ("error", ())
    assert verdict.message.startswith("The compiler: Exit code 1: ")


def test_language_is_unknown(judging: Judging) -> None:
    verdict = judging.judge("", InputOutputTests(cases=TWICE), language="klingon")
    assert verdict.outcome == "error"
    assert verdict.message.startswith("The language 'klingon' is unknown. Use one of: python, ")


def test_missing_compiler_is_no_fault_of_the_program(judging: Judging) -> None:
    if shutil.which("rustc"):
        pytest.skip("rustc is installed")
    with pytest.raises(BackendError, match="rustc is not installed"):
        judging.judge("fn main() {}", None, language="rust")


def test_each_case_is_judged_by_itself(judging: Judging) -> None:
    code = "x = int(input())\nif x == 2: raise SystemExit(5)\nprint(x)"
    cases = (Case("1", "1"), Case("2", "2"), Case("3", "4"), Case("4", "4"))
    verdict = judging.judge(code, InputOutputTests(cases=cases))
    assert [case.outcome for case in verdict.cases] == ["passed", "error", "failed", "passed"]
    assert verdict.outcome == "error"
    assert verdict.message == "Case 1: Exit code 5"


def test_right_output_of_a_program_that_fails_is_not_passed(judging: Judging) -> None:
    verdict = judging.judge(f"{IN_PYTHON}\n1 / 0", InputOutputTests(cases=TWICE))
    assert verdict.outcome == "error"
    assert verdict.message == "Case 0: Exit code 1: ZeroDivisionError: division by zero"


def test_output_of_standard_error_does_not_count(judging: Judging) -> None:
    code = f"import sys\nprint('noise', file=sys.stderr)\n{IN_PYTHON}"
    assert judging.judge(code, InputOutputTests(cases=TWICE, compare="exact")).cases[0].passed


def test_case_at_a_limit_is_the_last_that_runs(judging: Judging) -> None:
    code = "if int(input()) == 2: print(1)\nwhile True: pass"
    verdict = judging.judge(code, InputOutputTests(cases=TWICE), cpu_seconds=0.3)
    assert [case.outcome for case in verdict.cases] == ["timeout"]
    assert (verdict.outcome, verdict.limit) == ("timeout", "cpu_seconds")
    assert verdict.message == "Case 0: Timeout: the limit of 0.3 CPU seconds."
    verdict = judging.judge(IN_PYTHON, InputOutputTests(cases=TWICE), output_bytes=1)
    assert (verdict.outcome, verdict.limit) == ("limit", "output_bytes")


def test_output_is_read_up_to_a_multiple_of_its_limit(judging: Judging) -> None:
    """To print costs so little CPU time that only the wall limit would end these programs."""
    write = "import os\ndata = bytes(100_000)\n"
    cases = {
        f"{write}for _ in range(9): os.write(1, data)": ("passed", None),
        f"{write}for _ in range(20): os.write(2, data)": ("limit", "output_bytes"),
        f"{write}while True: os.write(1, data)": ("limit", "output_bytes"),
    }
    for code, expected in cases.items():
        verdict = judging.judge(code, None, wall_seconds=3)
        assert (verdict.outcome, verdict.limit) == expected, verdict.message


def test_cpu_time_is_limited_where_the_executor_has_no_limit() -> None:
    async def verdict() -> Verdict:
        async with SandboxCommandLineCodeExecutor(limits=Limits.unlimited()) as executor:
            program = Program(id="1", code="while True: pass")
            return await judge(executor, program, JudgeLimits(cpu_seconds=0.3, wall_seconds=None))

    assert asyncio.run(verdict()).limit == "cpu_seconds"


def test_unprintable_output_is_compared(judging: Judging) -> None:
    tests = InputOutputTests(cases=(Case("", "\0é\x1b[0m"),), compare="exact")
    assert judging.judge("print('\\0é\\x1b[0m', end='')", tests).passed


def test_input_may_be_large(judging: Judging) -> None:
    text = "é" * 300_000
    tests = InputOutputTests(cases=(Case(text, str(len(text))),))
    assert judging.judge("import sys\nprint(len(sys.stdin.read()))", tests).passed


CHECKER = """
import json, sys
values = json.load(sys.stdin)
print("not twice", values["stdin"].strip())
sys.exit(int(values["output"]) != 2 * int(values["stdin"]) or values["expected"] != "x")
"""


def test_checker_decides(judging: Judging) -> None:
    cases = (Case("2\n", "x"), Case("3\n", "x"))
    assert judging.judge(IN_PYTHON, CheckerTests(checker=CHECKER, cases=cases)).passed
    verdict = judging.judge("print(4)", CheckerTests(checker=CHECKER, cases=cases))
    assert [case.outcome for case in verdict.cases] == ["passed", "failed"]
    assert verdict.message == "Case 1: not twice 3"
    assert verdict.exit_code == 0


FAILING_CHECKERS = {
    "1 / 0": "ZeroDivisionError: division by zero",
    "import": "SyntaxError: invalid syntax",
    "while True: pass": "Timeout: the limit of 0.3 CPU seconds.",
    "import os\nos.kill(os.getpid(), 9)": "Exit code 137",
}


def test_checkers_that_fail_are_named(judging: Judging) -> None:
    for checker, message in FAILING_CHECKERS.items():
        tests = CheckerTests(checker=checker, cases=(Case(),))
        verdict = judging.judge("print(1)", tests, cpu_seconds=0.3)
        assert verdict.outcome == "error"
        assert verdict.message == f"Case 0: The checker itself failed: {message}"
        assert verdict.cpu_seconds < 0.3
