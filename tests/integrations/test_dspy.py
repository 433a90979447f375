"""DSPy runs the code of its modules in the sandbox: RLM, ProgramOfThought, CodeAct and Flex."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import PINS, run_in_framework

pytestmark = [pytest.mark.slow, pytest.mark.pythons, pytest.mark.network, pytest.mark.timeout(300)]

PROTOCOL = """\
import dataclasses, os
from typing import NamedTuple
from pydantic import BaseModel
from dspy.primitives import CodeInterpreter
from cellblock.integrations.dspy import CellblockInterpreter

interpreter = CellblockInterpreter({"host_id": os.getpid, "fail": lambda: 1 / 0}, timeout=20)
assert isinstance(interpreter, CodeInterpreter)
interpreter.start()

def show(code, **variables):
    try:
        print(repr(interpreter.execute(code, variables)))
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[-1])

show(f"import os\\nprint(host_id() == {os.getpid()}, os.getpid() == {os.getpid()}, x)", x=[1])
show("y = 5")
show("y")
show("'{}'")
show("1 +")
show("print('so far'); fail()")
show("y", x=object())
show("SUBMIT(y)")
interpreter.output_fields = [{"name": "a"}, {"name": "b"}]
show("SUBMIT(1, b=2)")
show("SUBMIT(1)")
show("import os; os._exit(3)")
show("input()")
show("y")
class Person(BaseModel): name: str
Point = NamedTuple("Point", [("x", int)])
Pair = dataclasses.make_dataclass("Pair", ["first"])
show("print(p, q, r, s)", p=Person(name="Ada"), q=[Point(1)], r=Pair(Point(2)), s={2, 1})
show("import collections; SUBMIT(collections.namedtuple('T', 'u')(3), {2, 1})")
interpreter.shutdown()
show("y")
interpreter.shutdown()
"""


def test_the_interpreter_keeps_the_contract(tmp_path: Path) -> None:
    assert run_in_framework(PINS["dspy"], tmp_path, "-c", PROTOCOL).splitlines() == [
        "'True False [1]'",
        "None",
        "'5'",
        "'{}'",
        "SyntaxError SyntaxError: invalid syntax",
        "CodeExecutionError RuntimeError: ZeroDivisionError: division by zero",
        "CodeInterpreterError A value of type object cannot be exchanged with a session: "
        "JSON has no object. Pass JSON values, bytes, an array or a table instead.",
        "FinalOutput({'output': 5})",
        "FinalOutput({'a': 1, 'b': 2})",
        "CodeExecutionError RuntimeError: TypeError: SUBMIT takes these values, each once: a, b.",
        "CodeExecutionError The session was restored: "
        "its variables are as they were before this block.",
        "CodeExecutionError input() is not available here.",
        "'5'",
        """"{'name': 'Ada'} [{'x': 1}] {'first': {'x': 2}} [1, 2]\"""",
        "FinalOutput({'a': {'u': 3}, 'b': [1, 2]})",
        "CodeInterpreterError The session of this interpreter has ended. Make a new one.",
    ]


MODULES = """\
import functools, logging, dspy
from cellblock.integrations.dspy import CellblockInterpreter
logging.getLogger("dspy").setLevel(logging.ERROR)
dspy.configure(interpreter_factory=functools.partial(CellblockInterpreter, timeout=20))

def double(x: int) -> int:
    return 2 * x

def ask(module, *answers, **inputs):
    with dspy.context(lm=dspy.utils.DummyLM(list(answers))):
        return module(**inputs)

found = ask(
    dspy.RLM("text -> size: int", tools=[double]),
    {"reasoning": "So.", "code": "print(len(text), llm_query(text[:3]))"},
    {"answer": "a short text"},
    {"reasoning": "So.", "code": "SUBMIT(double(len(text)))"},
    text="abcdef",
)
print(found.size, "a short text" in found.trajectory[0]["output"])
code, answer = "SUBMIT({'answer': 6 * 7})", {"reasoning": "So.", "answer": "42"}
program = dspy.ProgramOfThought("question -> answer")
print(ask(program, {"reasoning": "So.", "generated_code": code}, answer, question="?").answer)
step = {"reasoning": "So.", "generated_code": "print(double(21))", "finished": True}
found = ask(dspy.CodeAct("question -> answer", tools=[double]), step, answer, question="?")
print(found.trajectory["code_output_0"])
print(ask(dspy.Flex("question -> answer"), {"answer": "yes"}, question="?").answer)
"""


def test_modules_run_their_code_in_the_sandbox_by_one_setting(tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # CodeAct reads the source of its tools
    program.write_text(MODULES)
    assert run_in_framework(PINS["dspy"], tmp_path, program).splitlines() == [
        "12 True",
        "42",
        '"42"',
        "yes",
    ]
