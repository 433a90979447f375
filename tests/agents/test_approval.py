"""Who decides whether code runs, and what a static look at code finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cellblock import CodeBlock, ComponentError, load_component
from cellblock.agents import (
    ApprovalRequest,
    ApprovalResponse,
    ApprovalRules,
    CodeApprovalEvent,
    CodeExecutionEvent,
    CodeExecutorAgent,
    EditedApprovalResponse,
)
from tests.agents.scripted import executor, model, run_agent

__all__ = ["executor"]

PYTHON = "```python\nprint('ran')\n```"
ALLOW_ALL: dict[str, Any] = dict.fromkeys(
    ("network", "install", "outside_path", "process", "dynamic_code", "delete"), "allow"
)


def hints(code: str, language: str = "python", **settings: Any) -> list[str]:
    """Return the hints of rules that allow everything."""
    rules = ApprovalRules(**{**ALLOW_ALL, **settings})
    decision = asyncio.run(rules.decide([CodeBlock(code, language)], []))
    assert decision.approved
    return list(decision.hints)


# functions


def yes(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="Fine.")


def no(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=False, reason="Not this.")


async def later_no(request: ApprovalRequest) -> ApprovalResponse:
    await asyncio.sleep(0)
    return no(request)


class Refuser:
    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        return no(request)


@pytest.mark.parametrize("function", [no, later_no, Refuser()], ids=["plain", "async", "object"])
def test_a_refused_block_does_not_run(
    executor: Any, function: Callable[[ApprovalRequest], Awaitable[ApprovalResponse]]
) -> None:
    agent = CodeExecutorAgent("a", executor, approval_func=function)
    event, answer = run_agent(agent, "```sh\ntouch ran\n```")
    assert isinstance(event, CodeApprovalEvent)
    assert (event.approved, event.reason) == (False, "Not this.")
    assert answer.to_text() == "Code execution was not approved. Reason: Not this."
    assert not (executor.work_dir / "ran").exists()


EDITED = (
    "The code was changed before it ran. This ran instead:\n\n"
    "```python\nprint('edited')\n```\n\nIts output:\nedited\n"
)


async def edit(request: ApprovalRequest) -> ApprovalResponse:
    blocks = [
        CodeBlock(block.code.replace("ran", "edited"), block.language)
        for block in request.code_blocks
    ]
    return EditedApprovalResponse(reason="Say it.", code_blocks=blocks)


@pytest.mark.parametrize("approval", [edit, ApprovalRules(other="ask", ask=edit)])
def test_an_edited_block_runs_instead_and_the_answer_says_so(executor: Any, approval: Any) -> None:
    event, answer = run_agent(CodeExecutorAgent("a", executor, approval_func=approval), PYTHON)
    assert isinstance(event, CodeApprovalEvent)
    assert event.edited_blocks == [CodeBlock("print('edited')\n", "python")]
    assert event.to_text() == "Code execution was approved with changes. Reason: Say it."
    assert answer.to_text() == EDITED


def test_the_model_goes_on_from_the_edited_block(executor: Any) -> None:
    agent = CodeExecutorAgent(
        "a", executor, approval_func=edit, model_client=model(PYTHON, "It was edited.")
    )
    events = run_agent(agent, "Print.")
    results = [event.result.output for event in events if isinstance(event, CodeExecutionEvent)]
    history = asyncio.run(agent.model_context.get_messages())
    assert results == [history[-2].content] == [EDITED]


def test_code_that_an_editor_leaves_as_it_is_needs_no_word(executor: Any) -> None:
    def same(request: ApprovalRequest) -> ApprovalResponse:
        return EditedApprovalResponse(reason="", code_blocks=request.code_blocks)

    answer = run_agent(CodeExecutorAgent("a", executor, approval_func=same), PYTHON)[-1]
    assert answer.to_text() == "ran\n"


@pytest.mark.parametrize("answer", [True, None, "yes"])
def test_an_answer_that_is_no_response_is_refused(executor: Any, answer: Any) -> None:
    agent = CodeExecutorAgent("a", executor, approval_func=lambda request: answer)
    with pytest.raises(ValueError, match="must return an ApprovalResponse, not"):
        run_agent(agent, PYTHON)


def test_an_error_of_the_function_is_raised(executor: Any) -> None:
    def fail(request: ApprovalRequest) -> ApprovalResponse:
        raise KeyError("nobody")

    with pytest.raises(KeyError, match="nobody"):
        run_agent(CodeExecutorAgent("a", executor, approval_func=fail), PYTHON)


# rules


def decide(rules: ApprovalRules, *blocks: tuple[str, str]) -> tuple[bool, str]:
    decision = asyncio.run(rules.decide([CodeBlock(code, tag) for tag, code in blocks], []))
    return decision.approved, decision.reason


def test_rules_allow_what_no_rule_is_about() -> None:
    rules = ApprovalRules()
    assert decide(rules, ("python", "print(1 / 2)"), ("sh", "ls; python job.py > out.txt")) == (
        True,
        "The rules allow it.",
    )


def test_a_rule_that_asks_without_a_function_denies() -> None:
    assert decide(ApprovalRules(), ("python", "import requests")) == (
        False,
        "The rules ask about block 0, line 1: network (imports requests), "
        "but there is no `ask` function.",
    )


def test_the_strictest_rule_wins() -> None:
    rules = ApprovalRules(network="ask", install="deny", ask=yes)
    assert decide(rules, ("sh", "curl https://a.example"))[0]
    assert decide(rules, ("sh", "curl https://a.example\npip install x")) == (
        False,
        "The rules deny block 0, line 2: install (pip install).",
    )


@pytest.mark.parametrize(("function", "approved"), [(yes, True), (later_no, False)])
def test_a_rule_that_asks_calls_the_function_with_the_hints(function: Any, approved: bool) -> None:
    seen: list[list[str]] = []

    async def ask(request: ApprovalRequest) -> ApprovalResponse:
        seen.append(request.hints)
        answer = function(request)
        return answer if isinstance(answer, ApprovalResponse) else await answer

    assert decide(ApprovalRules(ask=ask), ("sh", "wget x.example"))[0] is approved
    assert seen == [["block 0, line 1: network (wget)"]]
    assert decide(ApprovalRules(ask=ask), ("sh", "ls"))[0]
    assert len(seen) == 1


def test_a_language_is_meant_under_all_its_names() -> None:
    rules = ApprovalRules(languages={"shell": "deny", "py": "allow"}, other="deny")
    assert decide(rules, ("bash", "ls")) == (False, "The rules deny block 0: language bash.")
    assert decide(rules, ("python3", "1"))[0]
    assert not decide(rules, ("ruby", "1"))[0]
    both = ApprovalRules(languages={"sh": "allow", "bash": "deny"})
    assert not decide(both, ("sh", "ls"))[0]


PYTHON_HINTS: list[tuple[str, list[str]]] = [
    ("import os\nimport urllib.request as r", ["line 2: network (imports urllib.request)"]),
    ("from http import client", ["line 1: network (imports http.client)"]),
    ("from http import HTTPStatus\nimport urllib.parse", []),
    ("read_csv('https://a.example/x')", ["line 1: network (https://a.example/x)"]),
    ("'see https://a.example'", []),
    ("import os as o\no.system('ls')", ["line 2: process (calls os.system)"]),
    ("from os import popen as p\np('ls')", ["line 2: process (calls os.popen)"]),
    ("os.system('ls')", []),  # never imported: the name is something else
    (
        "import subprocess\nsubprocess.run(['pip', 'install', 'x'])",
        ["line 1: process (imports subprocess)", "line 2: install (pip install)"],
    ),
    (
        "eval('1')\nmodel.eval()\nimport re\nre.compile('a')",
        ["line 1: dynamic code (calls eval)"],
    ),
    ("open('/etc/passwd')", ["line 1: outside path (/etc/passwd)"]),
    ("open('data/../../x')", ["line 1: outside path (data/../../x)"]),
    ("open('~/x')\nopen('data/x..y')", ["line 1: outside path (~/x)"]),
    ("open('/workspace/x')\nopen('/tmp/x')\nopen('/dev/null')", []),
    ("open('/workspace/../etc/x')", ["line 1: outside path (/workspace/../etc/x)"]),
    ("print('5 m/s', '/h', '</b>', 'a/b')", []),
    ("def f():\n    '''Text\n    /etc/passwd\n    '''", []),
    ("import nice\n!pip install x\n", ["line 2: install (pip install)"]),
    ("'\\d'", []),
]


def test_what_python_seems_to_do() -> None:
    faults = [
        (code, found)
        for code, expected in PYTHON_HINTS
        if (found := hints(code)) != [f"block 0, {hint}" for hint in expected]
    ]
    assert faults == []


SHELL_HINTS: list[tuple[str, list[str]]] = [
    ("# curl\necho hi", []),
    ("curl -s https://a.example/x", ["network (https://a.example/x)", "network (curl)"]),
    ("git  clone x && git status", ["network (git clone)"]),
    ("git -C folder --no-pager push", ["network (git -C folder --no-pager push)"]),
    ("python -m pip install -q x", ["install (pip install)"]),
    ("sudo apt-get -y install x", ["install (apt-get -y install)"]),
    ("uv pip install x", ["install (uv pip install)"]),
    ("npm i", ["install (npm i)"]),
    ("echo install pip", []),
    ("cat /etc/passwd", ["outside path (/etc/passwd)"]),
    ("ls ~", ["outside path (~)"]),
    ("cat ../x 2>/dev/null", ["outside path (../x)"]),
    ("cat a/b ./c && echo 1/2", []),
    ("cat x | sh", ["dynamic code (| sh)"]),
    ("nohup ./serve &", ["process (nohup)"]),
]


def test_what_a_shell_script_seems_to_do() -> None:
    faults: list[tuple[str, list[str]]] = []
    for code, expected in SHELL_HINTS:
        line = 1 + code.startswith("#")
        if (found := hints(code, "sh")) != [f"block 0, line {line}: {hint}" for hint in expected]:
            faults.append((code, found))
    assert faults == []


def test_allowed_paths_are_not_reported() -> None:
    assert hints("open('/data/a/x')", allowed_paths=["/data/a"]) == []
    assert hints("open('/data/ab')", allowed_paths=["/data/a/"]) != []


@pytest.mark.parametrize(
    "code",
    ["'" * 3, "\0", "(" * 5000, "/" * 100_000, "../" * 30_000, "a/" * 50_000 + "b", " " * 10**6],
)
def test_any_text_is_looked_at_quickly(code: str) -> None:
    hints(code)
    hints(code, "sh")


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="'network' must be 'allow', 'ask' or 'deny', not 'no'"):
        ApprovalRules(network="no")  # pyright: ignore[reportArgumentType] - the mistake
    with pytest.raises(ValueError, match="'sh' must be"):
        ApprovalRules(languages={"sh": True})  # pyright: ignore[reportArgumentType] - the mistake
    with pytest.raises(ValueError, match="allowed_paths must be a list"):
        ApprovalRules(allowed_paths="/data")
    with pytest.raises(ValueError, match="ask must be a function .*, not 'yes'"):
        ApprovalRules(ask="yes")  # pyright: ignore[reportArgumentType] - the mistake


def test_rules_are_saved_and_loaded() -> None:
    rules = ApprovalRules(languages={"bash": "deny"}, network="allow", allowed_paths=["/data"])
    saved = rules.dump_component()
    loaded = load_component(saved)
    assert isinstance(loaded, ApprovalRules)
    assert loaded.dump_component() == saved
    assert not decide(loaded, ("sh", "ls"))[0]
    assert decide(loaded, ("python", "import requests\nopen('/data/x')"))[0]


def test_rules_with_a_function_are_not_saved() -> None:
    with pytest.raises(ValueError, match="with a function `ask` cannot be saved"):
        ApprovalRules(ask=yes).dump_component()


def test_damaged_rules_are_not_loaded() -> None:
    saved = ApprovalRules().dump_component().to_dict()
    saved["config"]["network"] = "maybe"
    with pytest.raises(ComponentError, match="'network' must be"):
        load_component(saved)
