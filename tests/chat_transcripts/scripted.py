"""What scenarios share: a model with scripted replies, and calls that may fail.

The model is registered in the way of AutoGen 0.2, so it runs under both libraries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class ScriptedModel:
    """A model client that prints what it is asked, and returns the replies of its config."""

    def __init__(self, config: dict[str, Any], **_: Any) -> None:
        self.replies = list(config["replies"])

    def create(self, params: dict[str, Any]) -> Any:
        asked = {key: params[key] for key in ("messages", "tools", "functions") if key in params}
        sys.stdout.write(f"model is asked {json.dumps(asked, sort_keys=True)}\n")
        reply = self.replies.pop(0)
        fields = {"content": reply} if isinstance(reply, str) else reply
        empty = {"role": "assistant", "content": None, "function_call": None, "tool_calls": None}
        message = SimpleNamespace(**{**empty, **fields})
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], model="scripted", cost=0)

    def message_retrieval(self, response: Any) -> list[Any]:
        return [_reply(choice.message) for choice in response.choices]

    def cost(self, response: Any) -> float:
        return 0.25

    @staticmethod
    def get_usage(response: Any) -> dict[str, Any]:
        return {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "cost": 0.25,
            "model": response.model,
        }


def _reply(message: SimpleNamespace) -> Any:
    if message.tool_calls is None and message.function_call is None:
        return message.content
    fields: dict[str, Any] = vars(message)
    return {key: value for key, value in fields.items() if value is not None}


def model_config(*replies: Any) -> dict[str, Any]:
    """Return the `llm_config` of an agent whose model says `replies`."""
    config = {"model": "scripted", "model_client_cls": "ScriptedModel", "replies": list(replies)}
    return {"config_list": [config], "cache_seed": None}


def with_model(agent: Any) -> Any:
    """Register the model of an agent that was made with `model_config`."""
    agent.register_model_client(model_client_cls=ScriptedModel)
    return agent


def scripted(lib: Any, name: str, *replies: Any, **options: Any) -> Any:
    """Return an agent without a model that sends `replies`, then has no reply."""
    settings = {"human_input_mode": "NEVER", "llm_config": False, **options}
    agent = lib.ConversableAgent(name, **settings)
    left = list(replies)

    def reply(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, Any]:
        return True, left.pop(0) if left else None

    agent.register_reply([lib.Agent, None], reply, position=len(agent._reply_func_list))
    return agent


def tool_call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    """Return a call that a model's reply has in `tool_calls`."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a call, or the exception that it raises."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        return error
