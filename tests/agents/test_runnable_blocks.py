"""Code that models write into tags and tool calls instead of fences."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cellblock.agents import (
    CodeExecutionEvent,
    CodeExecutorAgent,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from cellblock.agents.runnable_blocks import calls_tools, runnable_blocks
from cellblock.models import CreateResult, FunctionCall, RequestUsage
from tests.agents.scripted import executor, model, run_agent

__all__ = ["executor"]

CALL = json.dumps({"name": "python", "arguments": {"code": "print(1)"}})
OTHER_CALL = json.dumps({"name": "get_weather", "arguments": {"city": "Bonn"}})


def pairs(text: str, *languages: str) -> list[tuple[str, str]]:
    blocks = runnable_blocks(text, languages or ("python", "sh"))
    return [(block.language, block.code) for block in blocks]


def test_code_in_tags_and_calls_of_tools_is_found() -> None:
    python, shell = [("python", "print(1)\n")], [("sh", "ls -l\n")]
    bash_call = {"name": "execute_bash", "arguments": json.dumps({"command": "ls -l"})}
    in_xml = "<function=python>\n<parameter=code>\nprint(1)\n</parameter>\n</function>"
    texts = {
        f"I run it.\n<tool_call>\n{CALL}\n</tool_call>": python,
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>": python * 2,
        f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>": python,
        f"<tool_call>\n{CALL}": python,
        f"<tool_call>\n{in_xml}\n</tool_call>": python,
        f"<function_call>{json.dumps(bash_call)}</function_call>": shell,
        '<tool_call>{"name": "run_code", "parameters": {"language": "bash", "code": "ls -l"}}': [
            ("bash", "ls -l\n")
        ],
        "<code>\nprint(1)\n</code>": python,
        "<code>\r\nprint(1)\r\n</code>\r\n": python,
        "Thus:\n<execute>\nprint(1)": python,
        "<execute_ipython>\n!ls\n</execute_ipython>": [("python", "!ls\n")],
        "<execute_bash>ls -l</execute_bash>": shell,
        '<code language="python">\nprint(1)\n</code>\n\n<bash>\nls -l\n</bash>': python + shell,
        "<execute>\nif 1:\n    print(1)\n</execute>": [("python", "if 1:\n    print(1)\n")],
        # This is no code that an agent should run.
        "Use <code>print(1)</code>, or\n<code>print(2)</code> if you like.": [],
        "<code>\nsome words\n</code>": [],
        "```html\n<code>\nprint(1)\n</code>\n```": [],
        f"<think>\n<tool_call>{CALL}</tool_call>\n</think>\nDone.": [],
        f"<tool_call>{OTHER_CALL}</tool_call>": [],
        "<tool_call>\nnonsense\n</tool_call>": [],
        '<tool_call>{"name": "python", "arguments": {"code": 1}}</tool_call>': [],
        '<tool_call>[1]</tool_call>\n<tool_call>{"name": {}, "arguments": "1"}</tool_call>': [],
        f"<tool_call>{CALL}</tool_call>\n```python\nprint(2)\n```": [("python", "print(2)\n")],
    }
    assert {text: pairs(text) for text in texts} == texts
    assert pairs(call("python", code="# a\rprint(1)\r\n")) == [("python", "# a\nprint(1)\n")]
    assert pairs("<bash>\nls\n</bash>", "python") == []
    assert pairs("<code>\n" * 20_000) == []  # in linear time
    assert calls_tools(f"<tool_call>{OTHER_CALL}</tool_call>")
    assert not calls_tools("The tag <tool_call> begins a call.")


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


BASH = "<bash>\ntouch x\n</bash>"
NO_CODE = [
    "- Not this:\n\n  ```html\n  <bash>\n  touch x\n  </bash>\n  ```",
    "1. Not this\n   ~~~xml\n   <execute_bash>\n   touch x\n   </execute_bash>\n   ~~~",
    f"1. ```html\n{BASH}\n```",
    f"> ```\n> a b\n> ```\n~~~html\n{BASH}",
    f"<!--\n{BASH}\n-->\nAll fine.",
    f"Hm <!-- {BASH}\n{BASH}",
    "Never send this:\n\n    <bash>\n    touch x\n    </bash>",
    "> <bash>\n> touch x\n> </bash>",
    "- item\n  <bash>\n  touch x\n  </bash>",
    "```html\n<bash>\n```\ntouch x\n```html\n</bash>\n```",
    "The tag is\n<bash>\ntouch x and more prose until the end",
    "The tag is\n<code>\nprint(1)\nand more prose",
    f"<tool_call>\n{CALL}\nand more prose",
    call("open_notebook", source="README"),
    call("search_code", input="print(1)"),
    call("python", source="README"),
    call("python", command="print(1)", code="print(2)"),
    call("python", language="python"),
    f"<tool_call>{CALL[:-1]}, {CALL[1:]}</tool_call>",
    '<tool_call>{"name": "sh", "arguments": {"cmd": "ls", "cmd": "rm"}}</tool_call>',
    '<tool_call>{"name": "sh", "arguments": "{\\"cmd\\": 1, \\"cmd\\": 2}"}</tool_call>',
    "<tool_call>\n<function=bash>\n<parameter=cmd>\nls\n</parameter>\n"
    "<parameter=cmd>\nrm\n</parameter>\n</function>\n</tool_call>",
]


def test_only_a_tag_that_is_no_part_of_other_text_has_code() -> None:
    assert [text for text in NO_CODE if pairs(text)] == []
    assert pairs(f"<!-- note -->\n```html\n<b>\n```\n{BASH}") == [("sh", "touch x\n")]
    inner = "print('<function=sh><parameter=cmd>rm</parameter>')"
    assert pairs(call("run_python_code", code=inner)) == [("python", f"{inner}\n")]


def native(*calls: tuple[str, Any]) -> CreateResult:
    """Return an answer with native calls of tools."""
    return CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name=name, arguments=text) for name, text in calls],
        usage=RequestUsage(1, 1),
        cached=False,
    )


@pytest.mark.parametrize("settings", [{"max_turns": 5}, {}])
def test_a_model_that_calls_tools_runs_code_or_is_told_the_form_once(
    executor: Any, settings: dict[str, Any]
) -> None:
    unknown = native(("get_weather", '{"city": "Bonn"}'))
    code = native(("python", '{"code": "print(40)"}'), ("bash", '{"command": "echo 2"}'))
    client = model(unknown, code, "It is 42.")
    agent = CodeExecutorAgent(
        "a", executor, model_client=client, model_client_stream=True, **settings
    )
    items = run_agent(agent, "Go.")
    outputs = [item.result.output for item in items if isinstance(item, CodeExecutionEvent)]
    assert (outputs, items[-1].to_text()) == (["40\n2\n"], "It is 42.")
    pieces = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    assert "```python\nprint(40)\n```\n\n```sh\necho 2\n```" in pieces
    (told,) = [item.content for item in items if isinstance(item, ThoughtEvent)]
    assert "blocks that begin with ```python or ```sh" in told
    sent = [message.content for message in client.create_calls[-1]["messages"]]
    assert (sent.count(told), "get_weather" in str(sent)) == (1, True)

    for calls in ([unknown] * 2, [f"<tool_call>{OTHER_CALL}</tool_call>"] * 2):
        client = model(*calls)
        agent = CodeExecutorAgent("a", executor, model_client=client, **settings)
        reason = "The model calls tools, although there are none."
        assert run_agent(agent, "Go.")[-1].metadata == {"stop_reason": reason}
