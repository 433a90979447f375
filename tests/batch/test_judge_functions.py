"""Function tests: what tests can ask of a program, and what their verdicts say."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import LocalCommandLineCodeExecutor, SandboxCommandLineCodeExecutor
from cellblock.batch import FunctionTests, JudgeLimits, Program, judge, run_many
from tests.batch.judging import DOUBLES, Judging

PASSES = {
    "data of all kinds crosses in both directions": (
        "def f(x): return x",
        """
import decimal, fractions
from collections import deque
for value in (
    None, True, 0, -1, 2**63, -10**5000, 1.5, float("inf"), 1j, "", "é\\ud800\\0", b"\\xff", (),
    (1,), [[], [1, "a", None]], {}, {1: [2], (3,): {4}}, set(), {1, "a"}, frozenset({2}),
    bytearray(b"x"), deque([1, 2]), range(3), decimal.Decimal("1.10"), fractions.Fraction(1, 3),
):
    got = f(value)
    assert got == value and type(got) is type(value), value
assert f(float("nan")) != f(float("nan"))
""",
    ),
    "arguments are changed in place": (
        "def f(a, b, c): a.append(1); b[2] = 3; c.clear()",
        "a, b, c = [], {1: 2}, {5}\nf(a, b, c=c)\nassert (a, b, c) == ([1], {1: 2, 2: 3}, set())",
    ),
    "exceptions are those of Python": (
        "def f(x): return {}[x]",
        "try: f(1)\nexcept KeyError as error: assert error.args == (1,)\nelse: assert False",
    ),
    "exceptions can be the program's own": (
        "class Bad(ValueError): pass\nclass Worse(Bad): pass\ndef f(x): raise Worse('no')",
        """
for kind in (Worse, Bad, ValueError):
    try: f(1)
    except kind as error: assert str(error) == 'no'
    else: assert False
""",
    ),
    "objects of the program can be used": (
        """
class Pair:
    def __init__(self, a, b=0): self.a, self.b = a, b
    def total(self): return self.a + self.b
def f(pairs): return max(pair.total() for pair in pairs)
""",
        """
pair = Pair(1, b=2)
pair.a = 10
assert (pair.a, pair.total()) == (10, 12)
assert f([pair, Pair(3)]) == 12
assert pair == pair and pair != Pair(1) and pair is not None and pair != None
""",
    ),
    "generators are read as far as the tests need": (
        "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1",
        "from itertools import islice\nassert list(islice(f(), 3)) == [0, 1, 2]",
    ),
    "containers of the program can be used": (
        """
class Box:
    def __len__(self): return 2
    def __getitem__(self, key): return {"a": 1}[key]
    def __bool__(self): return False
f = Box
""",
        "box = f()\nassert len(box) == 2 and box['a'] == 1 and not box",
    ),
    "functions of the tests can be passed": (
        "def f(function, values): return sorted(map(function, values))",
        "assert f(lambda value: -value, [1, 2]) == [-2, -1]\nassert f(str, [1]) == ['1']",
    ),
    "coroutines can be awaited": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x",
        "import asyncio\nassert asyncio.run(f(1)) == 1",
    ),
    "objects have a text": (
        "class Point:\n    def __str__(self): return '<1>'\nf = Point",
        "assert str(f()) == f'{f()}' == '<1>'",
    ),
    "a function can come back from the program": (
        "def f(n): return lambda x: x + n",
        "assert f(1)(2) == 3",
    ),
    "helpers of the program can be called": (
        "def helper(x): return x + 1\ndef f(x): return helper(x)",
        "assert f(1) == helper(1) == 2",
    ),
    "floats are compared with a tolerance": (
        "def f(x): return x / 3",
        "assert abs(f(1) - 0.333333) < 1e-4 and math.isclose(f(3), 1)",
    ),
    "check can stand next to asserts": (
        "def f(x): return x",
        "assert f(1) == 1\ndef check(function): assert function(2) == 2\nassert candidate(3) == 3",
    ),
    "the code that is only for scripts does not run": (
        "def f(x): return x\nif __name__ == '__main__': f = input()",
        "assert f(1) == 1",
    ),
    "dataclasses, pickles and threads work": (
        """
import pickle, subprocess, sys, threading
from dataclasses import dataclass
@dataclass
class Point:
    x: int
def f(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(pickle.loads(pickle.dumps(Point(x))).x))
    thread.start()
    thread.join()
    return found + [subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout]
""",
        "assert f(1) == [1, 'hi\\n']",
    ),
}


def test_right_programs_pass(judging: Judging) -> None:
    verdicts = {name: judging.judge_function(*each) for name, each in PASSES.items()}
    assert {name: one for name, one in verdicts.items() if not one.passed} == {}


def test_arrays_cross(judging: Judging) -> None:
    pytest.importorskip("numpy")
    code = "import numpy\ndef f(x): return x * 2, x.sum()"
    tests = (
        "double, total = f(np.array([[1, 2]]))\nassert (double == [[2, 4]]).all() and total == 3"
    )
    verdict = judging.judge_function(code, tests)
    assert verdict.passed, verdict


def test_entry_point_can_have_a_builtin_name_or_be_a_method(judging: Judging) -> None:
    assert judging.judge_function("def sum(a, b): return a", "assert sum(1, 2) == 1", "sum").passed
    solution = "class Solution:\n    def solve(self, x): return 2 * x"
    assert judging.judge_function(solution, DOUBLES, "Solution().solve").passed


def test_tests_need_no_entry_point(judging: Judging) -> None:
    assert judging.judge_function("def g(x): return x", "assert g(1) == 1", None).passed


MESSAGES = {
    "a wrong result": (
        "def f(x): return 41",
        DOUBLES,
        "failed",
        "AssertionError in line 2 of the tests: assert candidate(21) == 42. "
        "The last call returned 41",
    ),
    "the text of an assert": (
        "def f(x): return 41",
        "assert f(1) == 42, 'too small'",
        "failed",
        "AssertionError: too small in line 1 of the tests: assert f(1) == 42, 'too small'. "
        "The last call returned 41",
    ),
    "an exception": (
        "def f(x):\n    return 1 / 0",
        DOUBLES,
        "error",
        "The program raised ZeroDivisionError: division by zero (line 2 of the program) "
        "in line 2 of the tests: assert candidate(21) == 42",
    ),
    "an assert of the program": (
        "def f(x): assert x == 1",
        DOUBLES,
        "error",
        "The program raised AssertionError (line 1 of the program) "
        "in line 2 of the tests: assert candidate(21) == 42",
    ),
    "an exception of the import": (
        "import nothing",
        DOUBLES,
        "error",
        "The program raised ModuleNotFoundError: No module named 'nothing' (line 1 of the program)",
    ),
    "a missing function": (
        "g = 1",
        DOUBLES,
        "error",
        "The program raised NameError: name 'f' is not defined",
    ),
    "an exit": (
        "import os\ndef f(x): os._exit(3)",
        DOUBLES,
        "error",
        "The program ended with exit code 3 before its tests had ended.",
    ),
    "a crash": (
        "import os\ndef f(x): os.abort()",
        DOUBLES,
        "error",
        "The program was ended by SIGABRT before its tests had ended.",
    ),
    "a syntax error of the tests": (
        "f = abs",
        "assert f(1) ==",
        "error",
        "The tests cannot be compiled: invalid syntax (tests.py, line 1)",
    ),
    "an exception of the tests": (
        "f = abs",
        "f(1)\nmissing(1)",
        "error",
        "The tests raised NameError: name 'missing' is not defined "
        "in line 2 of the tests: missing(1)",
    ),
    "tests that use nothing of the program": (
        "f = abs",
        "assert 1 == 1",
        "error",
        "The tests have not used the program.",
    ),
    "the comparison of an object": (
        "class Odd: pass\ndef f(x): return Odd()",
        "assert f(1) == 1",
        "error",
        "The tests compare an object of the class Odd, which is not plain data. Compare its "
        "attributes, or let the program return plain data. "
        "See line 1 of the tests: assert f(1) == 1.",
    ),
    "an argument that cannot be passed": (
        "f = abs",
        "f(object())",
        "error",
        "The tests pass an object of the class object to the program. Only plain data, functions "
        "and objects of the program itself can be passed. See line 1 of the tests: f(object()).",
    ),
}


def test_verdicts_say_what_was_wrong(judging: Judging) -> None:
    verdicts = {name: judging.judge_function(*each[:2]) for name, each in MESSAGES.items()}
    found = {name: (one.outcome, one.message) for name, one in verdicts.items()}
    assert found == {name: each[2:] for name, each in MESSAGES.items()}


def test_what_the_tests_catch_is_no_pass_if_the_program_has_ended(judging: Judging) -> None:
    tests = "try: f(1)\nexcept BaseException: pass"
    assert judging.judge_function("def f(x): raise ValueError", tests).passed
    assert not judging.judge_function("import os\ndef f(x): os._exit(0)", tests).passed
    assert not judging.judge_function(
        "class A: pass\ndef f(x): return A() ",
        f"{tests}\nx = [A()]\ntry: x == [1]\nexcept BaseException: pass",
    ).passed


def test_output_is_kept_and_terminal_codes_are_not(judging: Judging) -> None:
    code = """
import sys
print('a\\x1b[2J')
def f(x):
    print(x, file=sys.stderr)
    raise OSError('\\x1b')
"""
    verdict = judging.judge_function(code)
    assert verdict.output == "a\ufffd[2J\n21\n"
    assert "\x1b" not in verdict.message


def test_program_reads_its_input_and_files(judging: Judging) -> None:
    code = "text = input() + open('data/a.txt').read()\ndef f(x): return text"
    verdict = judging.judge_function(
        code, "assert f(1) == 'in, a'", stdin="in, \n", files={"data/a.txt": "a"}
    )
    assert verdict.passed, verdict


def test_file_outside_the_work_folder_is_refused(judging: Judging) -> None:
    verdict = judging.judge_function("f = abs", files={"../a.txt": "a"})
    assert verdict.outcome == "error"
    assert verdict.message == "The file '../a.txt': Filename is not in the workspace."


def test_function_tests_need_python(judging: Judging) -> None:
    verdict = judging.judge_function("echo", language="sh")
    assert verdict.message == "Function tests need a program in Python, not 'sh'."


# time and memory

BURN = "import time\ndef burn(seconds):\n    end = time.process_time() + seconds\n" + (
    "    while time.process_time() < end: pass\n"
)


def test_cpu_time_decides_for_programs_and_for_tests_apart(judging: Judging) -> None:
    calls = "burn(0.5)\nassert f(0.5) is None"
    code = f"{BURN}\nf = burn"
    assert judging.judge_function(code, f"{BURN}\n{calls}", cpu_seconds=0.8).passed
    verdict = judging.judge_function(code, "f(0.5)", cpu_seconds=0.3)
    assert (verdict.outcome, verdict.limit) == ("timeout", "cpu_seconds")
    assert verdict.message == "The program used more than 0.3 CPU seconds."
    endless = "def f():\n    while True: yield 1"
    verdict = judging.judge_function(endless, "for _ in f(): pass", cpu_seconds=0.3)
    assert (verdict.outcome, verdict.limit) == ("timeout", "cpu_seconds")
    verdict = judging.judge_function(code, f"{BURN}\nf(0)\nburn(60)", cpu_seconds=0.3)
    assert verdict.outcome == "error"
    assert verdict.message == "The tests themselves used more than 0.3 CPU seconds."


def test_a_batch_gives_the_tests_their_own_cpu_time() -> None:
    tests = FunctionTests(code=f"{BURN}\nburn(0.7)\nf(0.7)", entry_point="f")
    program = Program(id="1", code=f"{BURN}\nf = burn", tests=tests)

    async def outcomes() -> list[str]:
        verdicts = run_many([program], limits=JudgeLimits(cpu_seconds=1))
        return [verdict.outcome async for verdict in verdicts]

    assert asyncio.run(outcomes()) == ["passed"]


def test_memory_is_a_limit(judging: Judging) -> None:
    verdict = judging.judge_function("def f(x): return 'x' * (400 << 20)")
    assert (verdict.outcome, verdict.limit) == ("limit", "memory_bytes"), verdict


# other places


@pytest.mark.filterwarnings("ignore:Using LocalCommandLine")
@pytest.mark.parametrize("kind", ["local", "landlock"])
def test_weaker_executors_judge_too(kind: str) -> None:
    landlock = SandboxCommandLineCodeExecutor(isolation="landlock")
    tests = FunctionTests(code=DOUBLES, entry_point="f")
    programs = [Program(id=one, code=f"def f(x): return {one}", tests=tests) for one in "0x"]
    programs.append(Program(id="2", code="def f(x): return 2 * x", tests=tests))

    async def verdicts() -> list[bool]:
        async with LocalCommandLineCodeExecutor() if kind == "local" else landlock as executor:
            return [(await judge(executor, one, JudgeLimits())).passed for one in programs]

    assert asyncio.run(verdicts()) == [False, False, True]
