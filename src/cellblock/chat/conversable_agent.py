"""ConversableAgent: an agent that can ask a model, a person, and run code and tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

from .agent import Agent, ChatMessage
from .agent_state import HumanInputMode
from .code.code_replies import CodeReplies
from .code_utils import content_str
from .conversations.chats import Chats, FirstMessage
from .conversations.nested_chats import NestedChats
from .conversations.run_response import AsyncRunResponse, RunResponse
from .models.model_replies import ModelReplies
from .names import assert_valid_name, normalize_name
from .replies.auto_reply_limits import AutoReplyLimits
from .replies.hooks import HOOKABLE_METHODS, Hooks
from .replies.human_input import HumanReplies
from .replies.message_store import MessageStore
from .replies.reply_functions import ReplyFunctions
from .replies.sending import Sending
from .tools.function_signature import name_of_function
from .tools.tool_registration import register_function
from .tools.tool_replies import ToolReplies


class ConversableAgent(
    HumanReplies,
    CodeReplies,
    ToolReplies,
    ModelReplies,
    NestedChats,
    Chats,
    ReplyFunctions,
    Hooks,
    AutoReplyLimits,
    Sending,
    MessageStore,
):
    """An agent that converses with others.

    To reply it tries, in this order: the end of the conversation or a person, as
    `human_input_mode` says; the functions and tools that the message calls; the code in the
    message; a chat model. `default_auto_reply` is the reply if none of them has one.

    - `system_message`: the instructions for the model.
    - `is_termination_msg`: returns True for a message that ends the conversation; by default one
      whose whole content is `TERMINATE`.
    - `max_consecutive_auto_reply`: how many replies in a row need no person; by default 100.
    - `human_input_mode`: `ALWAYS` asks a person for each reply; `TERMINATE` asks at the end of a
      conversation and when the automatic replies are used up; `NEVER` does not ask.
    - `function_map`: the functions that a model can call, by name.
    - `code_execution_config`: False runs no code; `{"executor": …}` runs it with that executor;
      `work_dir`, `use_docker`, `timeout` and `last_n_messages` say how without one.
    - `llm_config`: the model, for example `{"config_list": [{"model": …, "api_key": …}]}`; False
      for no model.
    - `description`: what the agent is for; by default its system message.
    - `chat_messages`: earlier messages by the other agent.
    - `silent`: True prints nothing that this agent sends; None leaves it to each chat.
    """

    def __init__(
        self,
        name: str,
        system_message: str | list[Any] | None = "You are a helpful AI Assistant.",
        is_termination_msg: Callable[[ChatMessage], bool] | None = None,
        max_consecutive_auto_reply: int | None = None,
        human_input_mode: HumanInputMode = "TERMINATE",
        function_map: dict[str, Callable[..., Any]] | None = None,
        code_execution_config: dict[str, Any] | Literal[False] = False,
        llm_config: dict[str, Any] | Literal[False] | None = None,
        default_auto_reply: str | ChatMessage = "",
        description: str | None = None,
        chat_messages: Mapping[Agent, list[ChatMessage]] | None = None,
        silent: bool | None = None,
    ) -> None:
        self._name = name
        self.human_input_mode = _valid_mode(human_input_mode)
        self.silent = silent
        _check_termination(is_termination_msg, max_consecutive_auto_reply)
        self._description = system_message if description is None else description
        self._is_termination_msg = is_termination_msg or _is_terminate
        self._default_auto_reply = default_auto_reply
        self._set_up_state(chat_messages)
        self._set_up_auto_replies(max_consecutive_auto_reply)
        self._set_up_model(llm_config, system_message)
        self._set_up_tools(function_map)
        self._set_up_code(code_execution_config)
        self._register_own_replies()

    def _set_up_state(self, chat_messages: Mapping[Agent, list[ChatMessage]] | None) -> None:
        self._oai_messages = defaultdict(list, chat_messages or {})
        self._human_input = []
        self._reply_func_list = []
        self.reply_at_receive = defaultdict(bool)
        self.hook_lists = {name: [] for name in HOOKABLE_METHODS}

    def _register_own_replies(self) -> None:
        """Register what is tried last first."""
        functions: list[Callable[..., Any]] = [
            ConversableAgent.generate_oai_reply,
            ConversableAgent.a_generate_oai_reply,
        ]
        if self._code_execution_config is not False:
            functions.append(ConversableAgent.generate_code_execution_reply)
        functions += [
            ConversableAgent.generate_tool_calls_reply,
            ConversableAgent.a_generate_tool_calls_reply,
            ConversableAgent.generate_function_call_reply,
            ConversableAgent.a_generate_function_call_reply,
            ConversableAgent.check_termination_and_human_reply,
            ConversableAgent.a_check_termination_and_human_reply,
        ]
        for function in functions:
            self.register_reply([Agent, None], function, ignore_async_in_sync_chat=True)

    def run(
        self,
        recipient: ConversableAgent | None = None,
        *,
        message: FirstMessage = None,
        tools: Callable[..., Any] | Iterable[Callable[..., Any]] = (),
        executor_kwargs: dict[str, Any] | None = None,
        user_input: bool = False,
        msg_to: Literal["agent", "user"] = "agent",
        **options: Any,
    ) -> RunResponse:
        """Chat with `recipient` as AG2's `run` does; the other `options` are of `initiate_chat`.

        Without `recipient` the other agent is a new one named "user", which executes the functions
        `tools` and asks a person if `user_input`. `executor_kwargs` are further arguments of it,
        such as `code_execution_config`. `msg_to` says who gets the message.
        """
        if recipient is not None:
            return RunResponse(self.initiate_chat(recipient, message=message, **options))
        with self._user_with_tools(tools, executor_kwargs, user_input) as user:
            opener, other = (user, self) if msg_to == "agent" else (self, user)
            return RunResponse(opener.initiate_chat(other, message=message, **options))

    async def a_run(
        self,
        recipient: ConversableAgent | None = None,
        *,
        message: FirstMessage = None,
        tools: Callable[..., Any] | Iterable[Callable[..., Any]] = (),
        executor_kwargs: dict[str, Any] | None = None,
        user_input: bool = False,
        msg_to: Literal["agent", "user"] = "agent",
        **options: Any,
    ) -> AsyncRunResponse:
        """Do what `run` does, without blocking the event loop."""
        if recipient is not None:
            chat = await self.a_initiate_chat(recipient, message=message, **options)
            return AsyncRunResponse(chat)
        with self._user_with_tools(tools, executor_kwargs, user_input) as user:
            opener, other = (user, self) if msg_to == "agent" else (self, user)
            return AsyncRunResponse(await opener.a_initiate_chat(other, message=message, **options))

    @contextmanager
    def _user_with_tools(
        self,
        tools: Callable[..., Any] | Iterable[Callable[..., Any]],
        options: dict[str, Any] | None,
        user_input: bool,
    ) -> Generator[ConversableAgent]:
        """Yield an agent that executes `tools`, which only this chat offers to the model."""
        settings: dict[str, Any] = {
            "human_input_mode": "ALWAYS" if user_input else "NEVER",
            "llm_config": False,
            "is_termination_msg": _mentions_terminate,
            **(options or {}),
        }
        user = ConversableAgent(settings.pop("name", "user"), **settings)
        offered: list[str] = []
        try:
            for tool in (tools,) if callable(tools) else tools:
                name = name_of_function(tool)
                what = tool.__doc__ or name
                register_function(tool, caller=self, executor=user, name=name, description=what)
                offered.append(name)
            yield user
        finally:
            for name in offered:
                self.update_tool_signature(name, is_remove=True)

    @property
    def name(self) -> str:
        """The name, unique among the agents of a chat."""
        return self._name

    @property
    def description(self) -> Any:
        """What the agent is for; a group chat selects speakers by it."""
        return self._description

    @description.setter
    def description(self, description: str) -> None:
        self._description = description

    @property
    def system_message(self) -> Any:
        """The instructions for the model."""
        return self._oai_system_message[0]["content"]

    def update_system_message(self, system_message: str | list[Any]) -> None:
        """Replace the instructions for the model."""
        self._oai_system_message[0]["content"] = system_message

    def reset(self) -> None:
        """Forget all messages, counters and usage; keep what was registered."""
        self.clear_history()
        self.reset_consecutive_auto_reply_counter()
        self.stop_reply_at_receive()
        if self.client is not None:
            self.client.clear_usage_summary()
        self._reset_reply_configs()

    @staticmethod
    def _assert_valid_name(name: str) -> str:
        return assert_valid_name(name)

    @staticmethod
    def _normalize_name(name: str) -> str:
        return normalize_name(name)


def _valid_mode(mode: HumanInputMode) -> HumanInputMode:
    if mode not in get_args(HumanInputMode):
        raise ValueError(
            f"human_input_mode must be 'ALWAYS', 'TERMINATE' or 'NEVER', not {mode!r}."
        )
    return mode


def _check_termination(is_termination_msg: object, limit: object) -> None:
    if is_termination_msg is not None and not callable(is_termination_msg):
        raise TypeError(
            "is_termination_msg must be a function that takes a message, such as lambda message: "
            f"'TERMINATE' in (message.get('content') or ''). It is {is_termination_msg!r:.100}."
        )
    if limit is not None and not isinstance(limit, int | float):
        raise TypeError(f"max_consecutive_auto_reply must be a number or None, not {limit!r:.100}.")


def _mentions_terminate(message: ChatMessage) -> bool:
    return "TERMINATE" in content_str(message.get("content"))


def _is_terminate(message: ChatMessage) -> bool:
    return content_str(message.get("content")) == "TERMINATE"
