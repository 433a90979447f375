"""ModelReplies: the part of a ConversableAgent that asks a chat model."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState, Reply
from ..io import IOStream
from ..model_requests.client_configs import copied_config
from ..model_requests.thread_step import in_thread
from ..names import normalize_name
from ..steps import Step, Steps, run, run_async
from .cache import AbstractCache
from .llm_config import LLMConfig
from .model_wrapper import OpenAIWrapper

_logger = logging.getLogger(__name__)
_NO_MODEL = (
    "When using OpenAI or Azure OpenAI endpoints, specify a non-empty 'model' either in "
    "'llm_config' or in each config of 'config_list'."
)


class ModelReplies(AgentState):
    """Asks the models of `llm_config`."""

    _needs_model: ClassVar[bool] = False
    _is_lack_of_model_logged = False

    def _set_up_model(
        self, llm_config: dict[str, Any] | Literal[False] | None, system_message: Any
    ) -> None:
        """Create the client of the models. Raise `ValueError` if `llm_config` names none."""
        self._validate_llm_config(llm_config)
        self._oai_system_message = [{"content": system_message, "role": "system"}]
        self.client_cache = None

    def _validate_llm_config(self, llm_config: dict[str, Any] | Literal[False] | None) -> None:
        config: Any = llm_config
        if llm_config is None:
            config = LLMConfig.get_current_llm_config() or self.DEFAULT_CONFIG
        if not (config is False or isinstance(config, dict)):
            raise AssertionError("llm_config must be a dict or False or None.")
        self.llm_config = config and copied_config(cast(dict[str, Any], config))
        if config is False:
            self.llm_config, self.client = False, None
            return
        if not _names_model(self.llm_config or {}):
            raise ValueError(_NO_MODEL)
        self.client = OpenAIWrapper(**cast(dict[str, Any], self.llm_config))

    def generate_oai_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: OpenAIWrapper | None = None,
    ) -> Reply:
        """Return True and the model's answer to `messages`; False and None without a model.

        `messages` are by default those by `sender`. `config` is another client to ask.
        """
        return run(self._oai_reply_steps(messages, sender, config))

    async def a_generate_oai_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: OpenAIWrapper | None = None,
    ) -> Reply:
        """Return True and the model's answer to `messages`. See `generate_oai_reply`.

        If a subclass overrides `generate_oai_reply`, that is called, in a thread.
        """
        if _is_overridden(self.generate_oai_reply, ModelReplies.generate_oai_reply):
            return await asyncio.to_thread(self.generate_oai_reply, messages, sender, config)
        return await run_async(self._oai_reply_steps(messages, sender, config))

    def _oai_reply_steps(
        self,
        messages: list[ChatMessage] | None,
        sender: Agent | None,
        config: OpenAIWrapper | None,
    ) -> Steps[Reply]:
        client = self.client if config is None else config
        if client is None:
            self._log_lack_of_model()
            return False, None
        if messages is None:
            messages = self._oai_messages[cast(Agent, sender)]
        asked = [*self._oai_system_message, *messages]
        answer = yield from self._model_answer_steps(client, asked, self.client_cache)
        return (False, None) if answer is None else (True, answer)

    def _log_lack_of_model(self) -> None:
        """Log once that the replies of an agent that is made for a model are empty."""
        if self._needs_model and not self._default_auto_reply and not self._is_lack_of_model_logged:
            self._is_lack_of_model_logged = True
            _logger.warning(
                "Agent '%s' has no model and answers with an empty default_auto_reply. "
                "Pass llm_config=.",
                self.name,
            )

    def _model_answer_steps(
        self, client: OpenAIWrapper, messages: list[ChatMessage], cache: AbstractCache | None
    ) -> Steps[str | ChatMessage | None]:
        """Ask `client`; a subclass can override the call."""
        own = self._generate_oai_reply_from_client
        if _is_overridden(own, ModelReplies._generate_oai_reply_from_client):
            return (yield from in_thread(own)(client, messages, cache))
        return (yield from self._answer_steps(client, messages, cache))

    def _generate_oai_reply_from_client(
        self, llm_client: OpenAIWrapper, messages: list[ChatMessage], cache: AbstractCache | None
    ) -> str | ChatMessage | None:
        return run(self._answer_steps(llm_client, messages, cache))

    async def _a_generate_oai_reply_from_client(
        self, llm_client: OpenAIWrapper, messages: list[ChatMessage], cache: AbstractCache | None
    ) -> str | ChatMessage | None:
        return await run_async(self._model_answer_steps(llm_client, messages, cache))

    def _answer_steps(
        self, client: OpenAIWrapper, messages: list[ChatMessage], cache: AbstractCache | None
    ) -> Steps[str | ChatMessage | None]:
        """Ask `client`. Return a text, a message with calls, or None with a warning."""
        response: Any = yield from _create_step(client)(
            context=messages[-1].pop("context", None),
            messages=unrolled(messages),
            cache=cache,
            agent=self,
        )
        answer = client.extract_text_or_completion_object(response)[0]
        if answer is None:
            warnings.warn(f"Extracted_response from {response} is None.", UserWarning, stacklevel=2)
            return None
        return answer if isinstance(answer, str) else _to_message(answer)

    def register_model_client(self, model_client_cls: type[Any], **kwargs: Any) -> None:
        """Use `model_client_cls`, a `ModelClient`, for the entry of `config_list` that names it.

        It is created with the entry and `kwargs`. Raise `ValueError` if no entry names it, or the
        agent has no model.
        """
        if self.client is None:
            raise ValueError(
                f"Agent {self.name!r} has no model. Pass llm_config= with an entry of config_list "
                f'that has "model_client_cls": "{model_client_cls.__name__}".'
            )
        self.client.register_model_client(model_client_cls, **kwargs)

    def print_usage_summary(self, mode: str | list[str] | None = None) -> None:
        """Print what the agent's models used. See `OpenAIWrapper.print_usage_summary`."""
        output = IOStream.get_default()
        if self.client is None:
            output.print(f"No cost incurred from agent '{self.name}'.")
        else:
            output.print(f"Agent '{self.name}':")
            self.client.print_usage_summary(mode)

    def get_actual_usage(self) -> dict[str, Any] | None:
        """Return the usage without the answers of caches; None if there is none."""
        return None if self.client is None else self.client.actual_usage_summary

    def get_total_usage(self) -> dict[str, Any] | None:
        """Return the usage with the answers of caches; None if there is none."""
        return None if self.client is None else self.client.total_usage_summary


def unrolled(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return `messages` with the results of tools as messages of their own.

    What a person said beside the results follows them.
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


def _names_model(llm_config: dict[str, Any]) -> bool:
    """Return True if `llm_config`, or an entry of its list, says which model to ask."""
    entries = cast(list[dict[str, Any]], llm_config.get("config_list") or [])
    if not llm_config or ("config_list" in llm_config and not entries and not _model(llm_config)):
        return False
    return all("model" not in entry or _model(entry) or _model(llm_config) for entry in entries)


def _model(config: dict[str, Any]) -> object:
    return config.get("model") or config.get("model_client")


def _is_overridden(method: Callable[..., Any], own: Callable[..., Any]) -> bool:
    return getattr(method, "__func__", method) is not own


def _create_step(client: Any) -> Step:
    """Return the call of `client.create`; in a thread if `client` has its own synchronous one."""
    own = getattr(client, "a_create", None)
    if own is None or _is_overridden(client.create, OpenAIWrapper.create):
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
