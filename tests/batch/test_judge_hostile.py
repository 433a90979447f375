"""Programs that try to pass without being right.

Each of `FORGERIES` passes where the tests run in the program's own process. The attacks on the
process of the tests succeed when the protection that they are about is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cellblock.batch import Case, CheckerTests, Verdict, function_run, harness_payload
from cellblock.batch.program_runs import ProgramRuns
from tests.batch.judging import DOUBLES, Judging

pytestmark = pytest.mark.depends_on_user

FORGERIES = {
    "exits when it is imported": "import os\nos._exit(0)",
    "exits when it is called": "import os\ndef f(x): os._exit(0)",
    "raises SystemExit when it is imported": "raise SystemExit",
    "raises SystemExit when it is called": "def f(x): raise SystemExit",
    "is equal to everything": """
class Any:
    def __eq__(self, other): return True
def f(x): return Any()
""",
    "is a number that is equal to everything": """
class Any(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(x): return Any(1)
""",
    "replaces the check": """
import builtins, sys, types
def f(x):
    frame = sys._getframe(1)
    while frame:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, types.FunctionType) and name == "check":
                value.__code__ = (lambda candidate: None).__code__
        frame = frame.f_back
    sys.settrace(lambda *_: None)
    raise SystemExit(0)
""",
    "swallows exceptions in a hook": """
import os, sys
sys.excepthook = lambda *_: os._exit(0)
def f(x): return 1
""",
    "exits at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 1",
    "replaces the process": """
import os
def f(x): os.execvp("true", ["true"])
""",
    "exits from a thread": """
import os, threading, time
def f(x):
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(60)
""",
    "exits in a signal handler": """
import os, signal, time
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
def f(x):
    signal.alarm(1)
    time.sleep(60)
""",
}


def test_forgeries_pass_in_one_process_but_not_when_judged(judging: Judging) -> None:
    faults = list[object]()
    for name, code in FORGERIES.items():
        together = judging.judge(f"{code}\n{DOUBLES}\ncheck(f)", None)
        judged = judging.judge_function(code)
        if not together.passed or judged.passed:
            faults.append((name, together, judged))
    assert faults == []


# What a right program does not do either: nothing of it becomes a pass or an error of our own.
OTHERS = {
    "closes all descriptors": "import os\nos.closerange(0, 1000)\ndef f(x): return 42",
    "prints a verdict": """
import json
def f(x):
    print(json.dumps({"nonce": "0" * 32, "outcome": "passed", "message": "", "cpu_seconds": 0.0}))
    return 1
""",
    "raises KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "interrupts the tests": """
import os, signal
def f(x):
    os.kill(os.getppid(), signal.SIGINT)
    return 1
""",
    "ends the tests": "import os\ndef f(x): os.kill(os.getppid(), 9)",
    "ends all processes": "import os\ndef f(x): os.kill(-1, 9)",
    "ends the tests with their own signal": "import os\ndef f(x): os.kill(os.getppid(), 27)",
    "limits the tests": """
import os, resource
resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, 0))
resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))
def f(x): return 1
""",
    "sends what is no JSON": "import os\ndef f(x): os.write(4, b'\\0\\0\\0\\x02no')",
    "sends JSON of a great depth": """
import os
text = b'[' * 100_000 + b']' * 100_000
def f(x): os.write(4, len(text).to_bytes(4, 'big') + text)
""",
    "announces a message without end": "import os\ndef f(x): os.write(4, b'\\xff' * 4)",
    "sends an unknown request": """
import os
text = b'["ask", "call", 0, [], {}]'
def f(x): os.write(4, len(text).to_bytes(4, 'big') + text)
""",
    "sends an exception that is none": """
import os
text = b'["raise", 0, ["os.system", "object"], "", ["tuple", "true"]]'
def f(x): os.write(4, len(text).to_bytes(4, 'big') + text)
""",
    "has a class whose name raises": """
class Meta(type):
    @property
    def __name__(cls): raise ValueError
class Odd(metaclass=Meta): pass
def f(x): return Odd()
""",
    "has an exception whose text raises": """
class Odd(Exception):
    def __str__(self): raise ValueError
    args = property(lambda self: 1 / 0)
def f(x): raise Odd
""",
    "returns a list that contains itself": "def f(x):\n    x = []\n    x.append(x)\n    return x",
    "leaves a child": """
import os, time
if os.fork() == 0:
    time.sleep(600)
os._exit(0)
""",
    "has no function": "g = 1",
    "has a name that is no function": "f = 42",
    "has a syntax error": "def f(x)",
    "contains NUL": "def f(x): return 42\0",
    "replaces what the connection uses": """
import json, os, builtins
json.dumps = lambda *_: "[]"
def f(x): return 42
""",
}


def test_misbehaviour_is_not_passed(judging: Judging) -> None:
    verdicts = {name: judging.judge_function(code) for name, code in OTHERS.items()}
    faults = {
        name: one
        for name, one in verdicts.items()
        if one.outcome not in ("failed", "error") or not one.message
    }
    assert faults == {}


def test_stopped_tests_end_at_the_wall_limit(judging: Judging) -> None:
    code = "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGSTOP)"
    assert judging.judge_function(code, wall_seconds=1).outcome == "timeout"


def test_endless_text_of_an_object_is_bounded_by_cpu_time(judging: Judging) -> None:
    code = """
class Odd(Exception):
    def __str__(self):
        while True: pass
def f(x): raise Odd
"""
    assert judging.judge_function(code, cpu_seconds=0.2).outcome == "timeout"


@pytest.mark.slow
def test_processes_without_end_are_bounded(judging: Judging) -> None:
    code = """
import os
def f(x):
    while True:
        try: os.fork()
        except OSError: pass
"""
    verdict = judging.judge_function(code, cpu_seconds=0.2)
    assert verdict.outcome == "timeout"
    assert verdict.message == "The program used more than 0.2 CPU seconds."


def test_output_without_end_is_bounded(judging: Judging) -> None:
    code = "def f(x):\n    while True: print('42' * 1000)"
    verdict = judging.judge_function(code, cpu_seconds=0.2)
    assert (verdict.outcome, verdict.limit) == ("limit", "output_bytes")
    assert len(verdict.output) < 11_000


def test_exceptions_that_end_iterations_do_not_end_those_of_the_tests(judging: Judging) -> None:
    tests = "assert [value for value in map(f, [1, 2])] == []\nassert all(map(f, [1, 2]))"
    for error in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
        code = f"def f(x): raise {error}"
        assert "ProgramEndedIteration" in judging.judge_function(code, tests).message
    assert judging.judge(f"def f(x): raise StopIteration\n{tests}", None).passed


LIES = """
import builtins, math
def isinstance(*_): return True
def abs(*_): return 0
class math:
    isclose = staticmethod(lambda *_, **__: True)
def f(x): return 1.0
"""


@pytest.mark.parametrize("tests", ["assert abs(f(1) - 2) < 1e-6", "assert math.isclose(f(1), 2)"])
def test_names_of_python_are_never_those_of_the_program(judging: Judging, tests: str) -> None:
    assert judging.judge(f"{LIES}\n{tests}", None).passed
    assert judging.judge_function(LIES, tests).outcome == "failed"


# attacks on the process of the tests, each with its protection off first

# Wherever the memory of the tests says "failed", let it say "passed".
WRITES_MEMORY = """
import os, re
def f(x):
    try:
        parent = os.getppid()
        memory = os.open(f"/proc/{parent}/mem", os.O_RDWR)
        for line in open(f"/proc/{parent}/maps"):
            found = re.match(r"(\\w+)-(\\w+) rw.. \\S+ \\S+ (?:0|\\d+) *(.*)", line)
            if not found or found[3].startswith("[v"): continue
            start, end = int(found[1], 16), int(found[2], 16)
            try: data = os.pread(memory, min(end - start, 1 << 24), start)
            except OSError: continue
            for hit in re.finditer(b"failed\\0", data):
                os.pwrite(memory, b"passed", start + hit.start())
    except OSError as error:
        print(error)
    return 1
"""
READS_TESTS = """
import os, re
def f(x):
    try:
        text = os.pread(os.open(f"/proc/{os.getppid()}/fd/0", os.O_RDONLY), 1 << 20, 0)
        return int(re.findall(rb"21\\) == (\\d+)", text)[-1])
    except OSError as error:
        print(error)
"""
REMEMBERS_TESTS = """
import re
def f(x):
    for line in open("/proc/self/maps"):
        found = re.match(r"(\\w+)-(\\w+) rw.. \\S+ \\S+ (?:0|\\d+) *(.*)", line)
        if not found or found[3].startswith("[v"): continue
        start, end = int(found[1], 16), int(found[2], 16)
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(start)
            try: data = memory.read(min(end - start, 1 << 24))
            except OSError: continue
        # The pattern itself is in memory, too.
        for hit in re.findall(rb"assert candidate.(?:21). == ([0-9]+)", data):
            return int(hit)
"""


def judge_with(
    judging: Judging,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    changes: Mapping[str, str],
    *,
    module: str = "main",
    tests: str = DOUBLES,
) -> Verdict:
    """Judge with the text of a module of the harness that each key is replaced by its value."""
    source = harness_payload.harness_sources()[module]
    for old, new in changes.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    weak = harness_payload.encode_harness({**harness_payload.harness_sources(), module: source})
    strong = harness_payload.encode_harness(harness_payload.harness_sources())

    def weak_input(*given: Any) -> bytes:
        data = harness_payload.harness_input(*given)
        assert data.count(strong) == 1
        return data.replace(strong, weak)

    with monkeypatch.context() as patch:
        patch.setattr(function_run, "harness_input", weak_input)
        return judging.judge_function(code, tests)


SHOWN = {"    _set_dumpable(False)\n": ""}
OPEN = {'    order = json.loads(read())\n    _give_stdin("")\n': "    order = json.loads(read())\n"}
READ_FIRST = {
    "    pid = os.fork()\n": "    order = read()\n    pid = os.fork()\n",
    "    order = json.loads(read())\n": "    order = json.loads(order)\n",
}


@pytest.mark.parametrize(
    ("code", "changes"),
    [(WRITES_MEMORY, SHOWN), (READS_TESTS, {**SHOWN, **OPEN}), (REMEMBERS_TESTS, READ_FIRST)],
    ids=["writes the memory of the tests", "reads the tests", "remembers the tests"],
)
def test_attack_on_the_tests_needs_a_protection_to_be_off(
    judging: Judging, monkeypatch: pytest.MonkeyPatch, code: str, changes: Mapping[str, str]
) -> None:
    assert judge_with(judging, monkeypatch, code, changes).passed
    verdict = judging.judge_function(code)
    assert verdict.outcome == "failed", verdict


IMPOSTOR = """
open("fractions.py", "w").write("Fraction = lambda *_: type('', (), {'__eq__': lambda *_: True})()")
open("colorsys.py", "w").write("def rgb_to_hls(*_): return 1")
print(1)
def f(x): return 1
"""


@pytest.mark.parametrize("is_protected", [False, True])
def test_tests_import_nothing_that_the_program_has_written(
    judging: Judging, monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    if not is_protected:
        monkeypatch.setattr(ProgramRuns, "distrusted", [])
    tests = "import colorsys\nassert f(1) == colorsys.rgb_to_hls(0.5, 0.5, 0.5)"
    assert judging.judge_function(IMPOSTOR, tests).passed is not is_protected


@pytest.mark.parametrize("is_protected", [False, True])
def test_checker_imports_nothing_that_the_program_has_written(
    judging: Judging, monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    if not is_protected:
        monkeypatch.setattr(ProgramRuns, "distrusted", [])
    checker = "import colorsys, sys\nsys.exit(colorsys.rgb_to_hls(0.5, 0.5, 0.5) != 1)"
    tests = CheckerTests(checker=checker, cases=(Case(),))
    assert judging.judge(IMPOSTOR, tests).passed is not is_protected


def test_program_finds_nothing_of_the_checker_and_the_expected_output(judging: Judging) -> None:
    code = "import os\nprint(os.listdir('.'), input())"
    tests = CheckerTests(
        checker="raise SystemExit(0)", cases=(Case("1", "4711"), Case("2", "4711"))
    )
    verdict = judging.judge(code, tests)
    assert [case.output for case in verdict.cases] == ["['main.py'] 1\n", "['main.py'] 2\n"]


def test_program_that_ruins_its_work_folder_is_at_fault(judging: Judging) -> None:
    code = "import os\nos.remove('main.py')\nprint(1)"
    tests = CheckerTests(checker="", cases=(Case("a"), Case("b")))
    assert judging.judge(code, tests).outcome == "error"
