"""Programs that answer for the comparison, are taken for a skip, or shadow what a checker imports.

Each passes with the protection off that it is about.
"""

from __future__ import annotations

import asyncio

import pytest

from cellblock import SandboxCommandLineCodeExecutor
from cellblock.batch import (
    Case,
    CheckerTests,
    JudgeLimits,
    Program,
    Verdict,
    harness_payload,
    judge,
)
from cellblock.executors.places.sandbox import SandboxPlace
from tests.batch.judging import Judging, open_judging
from tests.batch.test_judge_hostile import judge_with
from tests.executors.session.live_session import skip_without_sandbox

UNITTEST = """
import unittest
class Tests(unittest.TestCase):
    def test_result(self):
        self.assertEqual(f(21), 42)
    def test_parts(self):
        for number in range(3):
            with self.subTest(number):
                self.assertEqual(f(number), 2 * number)
def check(candidate):
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Tests)
    result = unittest.TestResult()
    suite.run(result)
    assert result.wasSuccessful(), (result.errors + result.failures)[0][1][-200:]
"""
DOCTEST = """
import doctest
def check(candidate):
    test = doctest.DocTestParser().get_doctest(">>> f(21)\\n42\\n", {"f": candidate}, "t", "t", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
"""
TASKS = """
import asyncio
async def compare(candidate):
    assert candidate(21) == 42
async def main(candidate):
    async with asyncio.TaskGroup() as group:
        group.create_task(compare(candidate))
def check(candidate):
    asyncio.run(main(candidate))
"""
RAISES = {
    "unittest.SkipTest": (UNITTEST, "import unittest\ndef f(x): raise unittest.SkipTest"),
    "unittest.case._ShouldStop": (
        UNITTEST,
        "import unittest.case\ndef f(x): raise unittest.case._ShouldStop",
    ),
    "only the name of SkipTest": (
        UNITTEST,
        "SkipTest = type('SkipTest', (Exception,), {'__module__': 'unittest.case'})\n"
        "def f(x): raise SkipTest",
    ),
    "a class derived from SkipTest": (
        UNITTEST,
        "import unittest\nclass Mine(unittest.SkipTest): pass\ndef f(x): raise Mine",
    ),
    "asyncio.CancelledError": (
        TASKS,
        "import asyncio\ndef f(x): raise asyncio.CancelledError",
    ),
    "its other name": (
        TASKS,
        "C = type('CancelledError', (BaseException,), {'__module__': 'asyncio'})\n"
        "def f(x): raise C",
    ),
    "that of a future, which a thread of asyncio turns into its own": (
        TASKS.replace("candidate(21)", "await asyncio.to_thread(candidate, 21)"),
        "import concurrent.futures\ndef f(x): raise concurrent.futures.CancelledError",
    ),
}
KNOWN = {" or _ends_tests(found):": ":"}  # the errors of the harness without its protection


@pytest.mark.parametrize("name", RAISES)
def test_an_exception_of_the_program_is_an_error_for_those_who_run_tests(
    judging: Judging, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tests, code = RAISES[name]
    assert judge_with(judging, monkeypatch, code, KNOWN, tests=tests, module="errors").passed
    verdict = judging.judge_function(code, tests)
    assert verdict.outcome in ("error", "failed"), verdict
    right = judging.judge_function("def f(x): return 2 * x", tests)
    assert right.passed, right


def test_an_exception_of_the_program_does_not_end_doctests(judging: Judging) -> None:
    assert judging.judge_function("def f(x): return 42", DOCTEST).passed
    for error in ("unittest.SkipTest", "bdb.BdbQuit"):
        code = f"import unittest, bdb\ndef f(x): raise {error}"
        assert not judging.judge_function(code, DOCTEST).passed


ANSWERS = {
    "__array_wrap__": """
import numpy
class Odd:
    def __array__(self, *_, **__): return numpy.zeros(3, int)
    def __array_wrap__(self, *_): return numpy.ones(3, bool)
    __array_priority__ = 0
def f(x): return Odd()
""",
    "__array_interface__": """
class Odd:
    def __init__(self): self.asked = 0
    @property
    def __array_interface__(self):
        return {"shape": (3,), "typestr": "<i8", "data": (8, False), "version": 3}
def f(x): return Odd()
""",
    "__array__": """
import numpy
class Odd:
    def __array__(self, *_, **__): return numpy.array([2, 4, 6])
def f(x): return Odd()
""",
}
COMPARE = """
import numpy as np
def check(candidate):
    x = np.array([1, 2, 3])
    assert (2 * x == candidate(x)).all()
"""
ASKS = {"if name in _NEVER or (name[:1]": "if False and (name[:1]"}  # without the protection


@pytest.mark.parametrize("name", ANSWERS)
def test_an_object_of_the_program_is_no_array(
    judging: Judging, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name != "__array_interface__":  # which ends the process of the tests, or reads its memory
        assert judge_with(
            judging, monkeypatch, ANSWERS[name], ASKS, module="tests", tests=COMPARE
        ).passed
    verdict = judging.judge_function(ANSWERS[name], COMPARE)
    assert verdict.outcome == "error", verdict
    assert "not plain data" in verdict.message, verdict


def test_special_attributes_that_tests_name_are_answered(judging: Judging) -> None:
    code = "class C:\n    def __add__(self, other): return 42\ndef f(x): return C()"
    tests = (
        "assert f.__name__ == 'f'\nassert C.__name__ == 'C'\nassert f(1).__add__(1) == 42\n"
        "assert not hasattr(f(1), '__array_interface__')\nassert not hasattr(f(1), '__index__')"
    )
    verdict = judging.judge_function(code, tests)
    assert verdict.passed, verdict


TABLES = """
import pandas as pd
def check(candidate):
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.to_datetime(["2020", "2021"])})
    frame["d"] = pd.Categorical(["u", "v"])
    pd.testing.assert_frame_equal(candidate(frame), frame[frame.a > 1])
    pd.testing.assert_series_equal(candidate(frame).a, pd.Series([2], index=[1], name="a"))
"""


def test_tables_cross_as_data(judging: Judging) -> None:
    right = judging.judge_function("def f(frame): return frame[frame.a > 1]", TABLES)
    assert right.passed, right
    wrong = judging.judge_function("def f(frame): return frame[frame.a > 0]", TABLES)
    assert wrong.outcome == "failed", wrong


SHADOWS = """
open("json.py", "w").write("import os\\nos._exit(0)")
for name in ("marshal", "types", "encodings", "traceback", "linecache", "re", "warnings"):
    open(name + ".py", "w").write("import os\\nos._exit(0)")
print(1)
"""
USERS = """
import os, site, sys
for folder in (site.getusersitepackages(), os.path.expanduser("~/.local")):
    os.makedirs(folder, exist_ok=True)
    for name in ("usercustomize.py", "sitecustomize.py"):
        open(os.path.join(folder, name), "w").write("import os\\nos._exit(0)")
    open(os.path.join(folder, "x.pth"), "w").write("import os; os._exit(0)\\n")
print(1)
"""
REFUSES = CheckerTests(
    checker="import json, re, sys\nassert json.load(sys.stdin)['output'] == '2\\n'", cases=(Case(),)
)


@pytest.mark.parametrize("code", [SHADOWS, USERS], ids=["in its folder", "in its home"])
def test_a_checker_starts_without_modules_of_the_program(judging: Judging, code: str) -> None:
    verdict = judging.judge(code, REFUSES)
    assert verdict.outcome in ("failed", "error"), verdict
    assert "AssertionError" in verdict.message, verdict


def test_a_checker_that_reads_json_first_is_passed_by_shadows(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cellblock.batch.cases.CHECKER_START", f"import json\n{harness_payload.CHECKER_START}"
    )
    assert judging.judge(SHADOWS, REFUSES).passed


NUMPY = """
import os
folder = next(path for path in sys.path if path.startswith("/opt/env"))
open(folder + "/numpy.py", "w").write("import os; os._exit(0)")
os.chmod(folder, 0o555)
print(1)
"""
COMMANDS = """
import os, sys
programs = os.environ["VIRTUAL_ENV"] + "/bin/"
for name in ("cmp", "python3", "python"):
    if os.path.lexists(programs + name): os.unlink(programs + name)
    open(programs + name, "w").write("#!/bin/sh\\nexit 0\\n")
    os.chmod(programs + name, 0o755)
folder = next(path for path in sys.path if path.endswith("site-packages"))
open(folder + "/x.pth", "w").write("import os; os._exit(0)\\n")
print(1)
"""
RUN = "import subprocess, sys\nsys.exit(subprocess.run({}).returncode)"
STARTS = {
    "numpy": "import numpy\nassert False",
    "cmp": RUN.format("['cmp', '/bin/sh', '/dev/null']"),
    "python": RUN.format("[sys.executable, '-I', '-c', 'exit(1)']"),
    "python of the path": RUN.format("['python3', '-I', '-c', 'exit(1)']"),
}


@pytest.mark.parametrize("name", STARTS)
def test_what_a_checker_imports_and_starts_is_not_the_programs(name: str) -> None:
    skip_without_sandbox()
    code = f"import sys\n{NUMPY}" if name == "numpy" else COMMANDS
    tests = CheckerTests(checker=STARTS[name], cases=(Case(),))
    with open_judging() as judging:  # its environment is used up
        verdict = judging.judge(code, tests)
    assert verdict.outcome in ("failed", "error"), verdict
    assert verdict.cases[0].output == "1\n", verdict


ENVIRONMENT = """
import os, sys
for folder in [*sys.path, os.environ["HOME"], os.environ.get("PYTHONPATH", ".")]:
    for name, text in ("sitecustomize.py", "import os"), ("x.pth", "import os; os._exit(0)"):
        try: open(os.path.join(folder, name), "w").write(text)
        except OSError: pass
print(1)
"""


@pytest.mark.parametrize("is_protected", [False, True])
def test_a_checker_starts_without_what_landlock_lets_a_program_install(
    monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    async def verdict() -> Verdict:
        async with SandboxCommandLineCodeExecutor(isolation="landlock") as executor:
            program = Program(id="1", code=ENVIRONMENT, tests=REFUSES)
            return await judge(executor, program, JudgeLimits())

    if not is_protected:
        monkeypatch.setattr(SandboxPlace, "isolated_command", SandboxPlace.command)
    assert asyncio.run(verdict()).passed is not is_protected
