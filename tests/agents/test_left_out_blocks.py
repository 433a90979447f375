"""Blocks that do not run are named, to the model and to people."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock.agents import CodeExecutorAgent, ThoughtEvent
from tests.agents.scripted import executor, model, run_agent

__all__ = ["executor"]

CODE = "```python\nprint('hello')\n```"


@pytest.mark.parametrize(
    ("languages", "ran", "told"),
    [
        (None, "sh\npy\n", ""),
        (["bash"], "sh\n", "\nBlocks in python were not run: only blocks in bash are."),
        (["py"], "py\n", "\nBlocks in sh were not run: only blocks in py are."),
        (["js"], "none", "\nBlocks in sh and python were not run: only blocks in js are."),
        ([], "none", "\nBlocks in sh and python were not run: none are."),
    ],
)
def test_only_supported_languages_run_and_others_are_named(
    executor: Any, languages: Any, ran: str, told: str
) -> None:
    agent = CodeExecutorAgent("a", executor, supported_languages=languages)
    (answer,) = run_agent(agent, "```sh\necho sh\n```\n```python\nprint('py')\n```")
    output = agent.NO_CODE_BLOCKS_FOUND_MESSAGE if ran == "none" else ran
    assert answer.to_text() == output + told


def test_data_beside_code_needs_no_word(executor: Any) -> None:
    (answer,) = run_agent(CodeExecutorAgent("a", executor), f"{CODE}\n```json\n{{}}\n```")
    assert answer.to_text() == "hello\n"


def test_a_model_is_told_which_of_its_blocks_did_not_run(executor: Any) -> None:
    client = model(f"{CODE}\n```rust\nfn main() {{}}\n```", "Done.")
    agent = CodeExecutorAgent("a", executor, model_client=client)
    items = run_agent(agent, "Go.")
    told = "Blocks in rust were not run: only blocks in python and sh are."
    assert told in [item.content for item in items if isinstance(item, ThoughtEvent)]
    assert told in [message.content for message in client.create_calls[-1]["messages"]]


def test_a_run_without_any_code_that_can_run_says_so(executor: Any) -> None:
    client = model("```js\nconsole.log(1)\n```")
    *_, thought, answer = run_agent(CodeExecutorAgent("a", executor, model_client=client), "Go.")
    told = "Blocks in js were not run: only blocks in python and sh are."
    assert thought.content == told
    assert answer.metadata == {"stop_reason": told}
