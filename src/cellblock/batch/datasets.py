"""Read the published forms of HumanEval and MBPP as programs with tests. Nothing is downloaded."""

from __future__ import annotations

import ast
import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from .json_fields import as_object, parse_object
from .programs import Program
from .tests import FunctionTests

Path = str | os.PathLike[str]


def human_eval(problems: Path, samples: Path | None = None) -> Iterator[Program]:
    """Yield the programs of HumanEval, or of problems in its form.

    problems   JSON lines, compressed if the name ends in `.gz`, with the keys task_id, prompt,
               canonical_solution, test and entry_point, such as `HumanEval.jsonl.gz`
    samples    JSON lines with task_id and completion, which continues the prompt, or solution, a
               whole program. None: the canonical solutions

    The identifier of a program is its task_id. With samples a number follows, as in
    `HumanEval/0#2`, which counts those of a task from 0. Raise `ValueError` if a line does not have
    this form, and `OSError` if a file cannot be read.
    """
    tasks = _tasks_by_id(problems, _read_human_eval)
    yield from _programs(tasks, samples)


def mbpp(
    problems: Path, samples: Path | None = None, *, challenge: bool = False
) -> Iterator[Program]:
    """Yield the programs of MBPP, or of problems in its form.

    problems    JSON lines, or a JSON list as in `sanitized-mbpp.json`, with the keys task_id,
                text (or prompt), code, test_list, and test_setup_code or test_imports
    samples     JSON lines with task_id and completion or solution, a whole program. None: the
                reference solutions, `code`
    challenge   whether programs also have to pass `challenge_test_list`

    Identifiers and errors are as in `human_eval`, but the identifier is `MBPP/` and the number.
    """

    def read(values: Mapping[str, Any], what: str) -> _Task:
        return _read_mbpp(values, what, challenge=challenge)

    yield from _programs(_tasks_by_id(problems, read), samples)


@dataclass(frozen=True)
class _Task:
    """One problem. `prompt` is what a completion continues."""

    id: str
    prompt: str
    solution: str
    tests: FunctionTests


def _read_human_eval(values: Mapping[str, Any], what: str) -> _Task:
    entry_point, prompt = _text(values, "entry_point", what), _text(values, "prompt", what)
    # The tests can use what the prompt imports and defines, but not as the program redefines it.
    code = f"{_without_function(prompt, entry_point)}\n{_text(values, 'test', what)}"
    return _Task(
        id=_text(values, "task_id", what),
        prompt=prompt,
        solution=prompt + _text(values, "canonical_solution", what),
        tests=FunctionTests(code=code, entry_point=entry_point),
    )


def _without_function(prompt: str, name: str) -> str:
    """Return `prompt` without the function that the program is to complete."""
    try:
        tree = ast.parse(prompt)
    except SyntaxError:  # it ends within the function
        return ""
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name)
    ]
    return ast.unparse(tree)


def _read_mbpp(values: Mapping[str, Any], what: str, *, challenge: bool) -> _Task:
    number = values.get("task_id")
    if not isinstance(number, int | str):
        raise ValueError(f'{what} needs "task_id", a number.')
    code = _text(values, "code", what)
    asserts = _texts(values, "test_list", what, required=True)
    if challenge:
        asserts += _texts(values, "challenge_test_list", what)
    setup = values.get("test_setup_code") or ""
    if not isinstance(setup, str):
        raise ValueError(f'{what}: "test_setup_code" must be a string.')
    lines = [*_texts(values, "test_imports", what), setup, *asserts]
    tests = "\n".join(lines)
    return _Task(
        id=f"MBPP/{number}",
        prompt="",
        solution=code,
        tests=FunctionTests(code=tests, entry_point=_called_function(code, tests)),
    )


def _called_function(code: str, tests: str) -> str | None:
    """Return the function of `code` that the first assert calls; None if it calls another one.

    Its name can be that of a builtin function, such as `sum`.
    """
    try:
        tree, calls = ast.parse(code), ast.walk(ast.parse(tests))
    except SyntaxError:
        return None
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = [
        node.func.id
        for node in calls
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return next((name for name in called if name in defined), None)


# files


def _programs(tasks: Mapping[str, _Task], samples: Path | None) -> Iterator[Program]:
    if samples is None:
        for task in tasks.values():
            yield Program(id=task.id, code=task.solution, tests=task.tests)
        return
    counts = dict[str, int]()
    for values, what in _read_objects(samples):
        number = values.get("task_id")
        name = f"MBPP/{number}" if isinstance(number, int) else str(number)
        if (task := tasks.get(name)) is None:
            raise ValueError(f"{what}: the task {number!r:.60} is not among the problems.")
        if "solution" in values:
            code = _text(values, "solution", what)
        else:
            code = task.prompt + _text(values, "completion", what)
        count = counts[name] = counts.get(name, -1) + 1
        yield Program(id=f"{name}#{count}", code=code, tests=task.tests)


def _tasks_by_id(path: Path, read: Any) -> dict[str, _Task]:
    tasks = dict[str, _Task]()
    for values, what in _read_objects(path):
        task: _Task = read(values, what)
        if task.id in tasks:
            raise ValueError(f"{what}: there is another problem with the task_id {task.id!r}.")
        tasks[task.id] = task
    return tasks


def _read_objects(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the objects of a file, each with the words that name it in an error."""
    name = os.fspath(path)
    opener = gzip.open if name.endswith(".gz") else open
    with opener(name, "rt", encoding="utf-8") as file:
        if name.removesuffix(".gz").endswith(".json"):
            try:
                listed = json.load(file)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{name} is not JSON: {error}.") from error
            if not isinstance(listed, list):
                raise ValueError(f"{name} must be a JSON list.")
            for number, value in enumerate(cast("list[object]", listed)):
                what = f"{name}, item {number}"
                yield as_object(value, what), what
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                what = f"{name}, line {number}"
                yield parse_object(line, what), what


def _text(values: Mapping[str, Any], name: str, what: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise ValueError(f'{what} needs "{name}", a string.')
    return value


def _texts(values: Mapping[str, Any], name: str, what: str, *, required: bool = False) -> list[str]:
    value = values.get(name)
    if value is None and not required:
        return []
    listed = cast("list[object]", value) if isinstance(value, list) else [None]
    texts = [each for each in listed if isinstance(each, str)]
    if len(texts) < len(listed):
        raise ValueError(f'{what} needs "{name}", a list of strings.')
    return texts
