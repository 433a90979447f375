"""ModelReplies: the part of a ConversableAgent that asks a chat model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from typing import Any, Protocol, cast

from pydantic import BaseModel

from ..agent import ChatMessage, Configuration, Reply
from ..io import IOStream
from ..names import normalize_name
from ..steps import Step, Steps, in_thread, is_overridden
from .cache import AbstractCache
from .client_configs import copied_config
from .config_keys import ModelConfig
from .llm_config import LLMConfig
from .model_wrapper import OpenAIWrapper

_logger = logging.getLogger(__name__)
_NO_MODEL = (
    "When using OpenAI or Azure OpenAI endpoints, specify a non-empty 'model' either in "
    "'llm_config' or in each config of 'config_list'."
)


class AsksModel(Protocol):
    """An agent that may have a model."""

    client: OpenAIWrapper | None

    @property
    def name(self) -> str: ...


class ModelReplies:
    """Asks the models of an agent, with its instructions.

    `is_needed` is True if the agent is of no use without a model.
    """

    def __init__(self, system_message: Any, *, is_needed: bool) -> None:
        self.system_messages: list[ChatMessage] = [{"content": system_message, "role": "system"}]
        self._warns_of_lack = is_needed

    def reply_steps(
        self,
        client: OpenAIWrapper,
        messages: list[ChatMessage],
        cache: AbstractCache | None,
        ask: Step,
    ) -> Steps[Reply]:
        """Ask `client` with `ask`, the agent's `_generate_oai_reply_from_client`."""
        answer = yield from ask(client, [*self.system_messages, *messages], cache)
        return (False, None) if answer is None else (True, answer)

    def log_lack(self, name: str) -> None:
        """Log once that the replies of the agent `name` are empty, if it needs a model."""
        if self._warns_of_lack:
            self._warns_of_lack = False
            _logger.warning(
                "Agent '%s' has no model and answers with an empty default_auto_reply. "
                "Pass llm_config=.",
                name,
            )

    @staticmethod
    def register_client(agent: AsksModel, cls: type[Any], options: dict[str, Any]) -> None:
        """Use `cls` for the entry that names it; see `register_model_client`."""
        if agent.client is None:
            raise ValueError(
                f"Agent {agent.name!r} has no model. Pass llm_config= with an entry of config_list "
                f'that has "model_client_cls": "{cls.__name__}".'
            )
        agent.client.register_model_client(cls, **options)

    @staticmethod
    def print_usage(agent: AsksModel, mode: str | list[str] | None) -> None:
        """Print what the models of `agent` used."""
        output = IOStream.get_default()
        if agent.client is None:
            output.print(f"No cost incurred from agent '{agent.name}'.")
        else:
            output.print(f"Agent '{agent.name}':")
            agent.client.print_usage_summary(mode)


def valid_config(llm_config: Any, default: Any) -> Configuration:
    """Return a copy of `llm_config`; None means that of the `with` block around, or `default`.

    Raise `AssertionError` or `ValueError` if it names no model.
    """
    if llm_config is None:
        llm_config = LLMConfig.get_current_llm_config() or default
    if not (llm_config is False or isinstance(llm_config, dict)):
        raise AssertionError("llm_config must be a dict or False or None.")
    if llm_config is False:
        return False
    config = copied_config(cast(ModelConfig, llm_config))
    if not _names_model(config):
        raise ValueError(_NO_MODEL)
    return config


def answer_steps(
    agent: object, client: OpenAIWrapper, messages: list[ChatMessage], cache: AbstractCache | None
) -> Steps[str | ChatMessage | None]:
    """Ask `client` for `agent`. Return a text, a message with calls, or None with a warning."""
    response: Any = yield from _create_step(client)(
        context=messages[-1].pop("context", None),
        messages=unrolled(messages),
        cache=cache,
        agent=agent,
    )
    answer = client.extract_text_or_completion_object(response)[0]
    if answer is None:
        warnings.warn(f"Extracted_response from {response} is None.", UserWarning, stacklevel=2)
        return None
    return answer if isinstance(answer, str) else _to_message(answer)


def unrolled(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return `messages` with each result of a tool as a separate message.

    What a person said in addition to the results follows them.
    """
    listed: list[ChatMessage] = []
    for message in messages:
        results = message.get("tool_responses")
        listed += results or []
        if not results:
            listed.append(message)
        elif message.get("role") != "tool":
            listed.append({key: message[key] for key in message if key != "tool_responses"})
    return listed


def _names_model(llm_config: ModelConfig) -> bool:
    """Return True if `llm_config`, or an entry of its list, says which model to ask."""
    entries = cast(list[ModelConfig], llm_config.get("config_list") or [])
    if not llm_config or ("config_list" in llm_config and not entries and not _model(llm_config)):
        return False
    return all("model" not in entry or _model(entry) or _model(llm_config) for entry in entries)


def _model(config: ModelConfig) -> object:
    return config.get("model") or config.get("model_client")


def _create_step(client: Any) -> Step:
    """Return the call of `client.create`; in a thread if `client` has its own synchronous one."""
    own = getattr(client, "a_create", None)
    if own is None or is_overridden(client.create, OpenAIWrapper.create):
        return in_thread(client.create)
    return Step(client.create, own)


def _to_message(answer: Any) -> ChatMessage:
    """Return the message `answer` of a model as a dict, with names of tools that can be sent."""
    message = cast(ChatMessage, answer.model_dump() if isinstance(answer, BaseModel) else answer)
    if not isinstance(answer, BaseModel | dict):
        message = _attributes(answer)
    if function := message.get("function_call"):
        function["name"] = normalize_name(function["name"])
    for call in cast(list[dict[str, Any]], message.get("tool_calls") or []):
        call["function"]["name"] = normalize_name(call["function"]["name"])
    return message


def _attributes(value: Any) -> Any:
    """Return the attributes of `value`, and of the objects in it, as dicts."""
    if isinstance(value, list):
        return [_attributes(item) for item in cast(list[Any], value)]
    if hasattr(value, "__dict__"):
        named = cast(dict[str, Any], vars(value))
        return {name: _attributes(item) for name, item in named.items()}
    return value
