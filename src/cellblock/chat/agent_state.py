"""AgentState: the attributes and calls that the parts of a ConversableAgent share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .agent import Agent, ChatMessage

if TYPE_CHECKING:
    from .models.cache import AbstractCache
    from .models.model_wrapper import OpenAIWrapper

HumanInputMode = Literal["ALWAYS", "TERMINATE", "NEVER"]
Reply = tuple[bool, str | ChatMessage | None]
"""What a reply function returns: True if the reply is final, and the reply."""


class AgentState:
    """What the parts of a `ConversableAgent` share.

    A `ConversableAgent` is made of parts, one a file: human input, code, tools, models, chats.
    Each part is a class with methods only. Names with an underscore that AutoGen's subclasses use
    are kept as they are.
    """

    DEFAULT_CONFIG: ClassVar[Any] = False
    MAX_CONSECUTIVE_AUTO_REPLY: ClassVar[int] = 100
    DEFAULT_SUMMARY_METHOD: ClassVar[str] = "last_msg"
    DEFAULT_SUMMARY_PROMPT: ClassVar[str] = (
        "Summarize the takeaway from the conversation. Do not add any introductory phrases."
    )

    human_input_mode: HumanInputMode
    silent: bool | None
    reply_at_receive: defaultdict[Agent, bool]
    # models
    llm_config: dict[str, Any] | Literal[False]
    client: OpenAIWrapper | None
    client_cache: AbstractCache | None
    _oai_system_message: list[ChatMessage]
    # messages by the other agent
    _oai_messages: defaultdict[Agent, list[ChatMessage]]
    # replies: dicts with trigger, reply_func, config, init_config, reset_config,
    # ignore_async_in_sync_chat
    _reply_func_list: list[dict[str, Any]]
    _default_auto_reply: str | ChatMessage
    _is_termination_msg: Callable[[ChatMessage], bool]
    _max_consecutive_auto_reply: int
    _max_consecutive_auto_reply_dict: defaultdict[Agent | None, int]
    _consecutive_auto_reply_counter: defaultdict[Agent | None, int]
    hook_lists: dict[str, list[Callable[..., Any]]]
    _human_input: list[str]
    # tools
    _function_map: dict[str, Callable[..., Any]]
    # code
    _code_execution_config: dict[str, Any] | Literal[False]
    _code_executor: Any
    # chats
    _finished_chats: Any

    if TYPE_CHECKING:  # methods of one part that the others call

        @property
        def name(self) -> str: ...
        @property
        def description(self) -> Any: ...
        def send(
            self,
            message: ChatMessage | str,
            recipient: Agent,
            request_reply: bool | None = None,
            silent: bool | None = False,
        ) -> None: ...
        async def a_send(
            self,
            message: ChatMessage | str,
            recipient: Agent,
            request_reply: bool | None = None,
            silent: bool | None = False,
        ) -> None: ...
        def generate_reply(
            self,
            messages: list[ChatMessage] | None = None,
            sender: Agent | None = None,
            **kwargs: Any,
        ) -> str | ChatMessage | None: ...
        async def a_generate_reply(
            self,
            messages: list[ChatMessage] | None = None,
            sender: Agent | None = None,
            **kwargs: Any,
        ) -> str | ChatMessage | None: ...
        def receive(
            self,
            message: ChatMessage | str,
            sender: Agent,
            request_reply: bool | None = None,
            silent: bool | None = False,
        ) -> None: ...
        async def a_receive(
            self,
            message: ChatMessage | str,
            sender: Agent,
            request_reply: bool | None = None,
            silent: bool | None = False,
        ) -> None: ...
        @staticmethod
        def _message_to_dict(message: ChatMessage | str) -> ChatMessage: ...
        def _append_oai_message(
            self,
            message: ChatMessage | str,
            role: str,
            conversation_id: Agent,
            is_sending: bool,
        ) -> bool: ...
        def _process_message_before_send(
            self, message: ChatMessage | str, recipient: Agent, silent: bool | None
        ) -> ChatMessage | str: ...
        async def _a_process_message_before_send(
            self, message: ChatMessage | str, recipient: Agent, silent: bool | None
        ) -> ChatMessage | str: ...
        def process_last_received_message(
            self, messages: list[ChatMessage]
        ) -> list[ChatMessage]: ...
        async def a_process_last_received_message(
            self, messages: list[ChatMessage]
        ) -> list[ChatMessage]: ...
        def process_all_messages_before_reply(
            self, messages: list[ChatMessage]
        ) -> list[ChatMessage]: ...
        async def a_process_all_messages_before_reply(
            self, messages: list[ChatMessage]
        ) -> list[ChatMessage]: ...
        def stop_reply_at_receive(self, sender: Agent | None = None) -> None: ...
        def get_human_input(self, prompt: str) -> str: ...
        def a_get_human_input(self, prompt: str) -> Awaitable[str]: ...
        def register_reply(
            self,
            trigger: Any,
            reply_func: Callable[..., Any],
            position: int = 0,
            config: Any = None,
            reset_config: Callable[[Any], Any] | None = None,
            *,
            ignore_async_in_sync_chat: bool = False,
            remove_other_reply_funcs: bool = False,
        ) -> None: ...
        def reset_consecutive_auto_reply_counter(self, sender: Agent | None = None) -> None: ...
        def clear_history(
            self, recipient: Agent | None = None, nr_messages_to_preserve: int | None = None
        ) -> None: ...
        def last_message(self, agent: Agent | None = None) -> ChatMessage | None: ...
        @property
        def chat_messages(self) -> dict[Agent, list[ChatMessage]]: ...
        def chat_messages_for_summary(self, agent: Agent) -> list[ChatMessage]: ...
        def generate_oai_reply(
            self,
            messages: list[ChatMessage] | None = None,
            sender: Agent | None = None,
            config: Any = None,
        ) -> Reply: ...
        def _raise_exception_on_async_reply_functions(self) -> None: ...
        def _generate_oai_reply_from_client(
            self, llm_client: Any, messages: list[ChatMessage], cache: AbstractCache | None
        ) -> str | ChatMessage | None: ...
        async def _a_generate_oai_reply_from_client(
            self, llm_client: Any, messages: list[ChatMessage], cache: AbstractCache | None
        ) -> str | ChatMessage | None: ...
