"""What CodeExecutorAgent refuses: arguments, states and messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock import CancellationToken, LocalCommandLineCodeExecutor, sync
from cellblock.agents import ApprovalRules, CodeExecutorAgent
from tests.agents.scripted import executor

__all__ = ["executor"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "two words"}, "must be a valid Python identifier"),
    ({"code_executor": object()}, "code_executor must be an executor such as"),
    ({"code_executor": LocalCommandLineCodeExecutor}, "must be an executor such as"),
    ({"code_executor": sync.SandboxCommandLineCodeExecutor()}, "cannot be a synchronous Sand"),
    ({"approval_func": True}, "approval_func must be a function .*, not True"),
    ({"approval_func": ApprovalRules}, r"or ApprovalRules\(...\), not <class"),
    ({"model_client": "gpt-4o"}, "model_client must be a client such as .*, not 'gpt-4o'"),
    ({"model_context": []}, r"model_context must be a context such as .*, not \[\]"),
    ({"system_message": 3}, "system_message must be a text or None, not 3"),
    ({"sources": "user"}, "must be lists of names"),
    ({"supported_languages": "python"}, "must be lists of names"),
    ({"max_retries_on_error": 1}, "model_client.model_info must be provided"),
    ({"max_retries_on_error": -1}, "max_retries_on_error must be 0 or more, not -1"),
    ({"max_seconds": 0}, "max_seconds must be above 0 or None, not 0"),
    ({"max_tokens": 0}, "max_tokens must be above 0 or None, not 0"),
    ({"max_output_characters": 0}, "max_output_characters must be above 0 or None, not 0"),
]


def test_wrong_arguments_are_refused(executor: Any) -> None:
    for arguments, message in WRONG:
        all_arguments: dict[str, Any] = {"name": "a", "code_executor": executor, **arguments}
        with pytest.raises(ValueError, match=message):
            CodeExecutorAgent(**all_arguments)


@pytest.mark.parametrize("messages", [[1], ["text"], [None]])
def test_what_is_no_message_is_refused(executor: Any, messages: Any) -> None:
    agent = CodeExecutorAgent("a", executor)
    with pytest.raises(ValueError, match="is not a message"):
        asyncio.run(agent.on_messages(messages, CancellationToken()))


@pytest.mark.parametrize("state", [{"foo": 1}, {}, "x", {"llm_context": None}])
def test_a_state_of_something_else_is_refused(executor: Any, state: Any) -> None:
    agent = CodeExecutorAgent("a", executor)
    with pytest.raises(ValueError, match=r"state .*Pass what save_state returned"):
        asyncio.run(agent.load_state(state))
