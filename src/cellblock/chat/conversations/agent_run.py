"""AG2's `run`: a chat with another agent, or with a new one that executes functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from ..agent import ChatMessage
from ..message_text import content_str
from ..steps import Step, Steps
from ..tools.function_signature import name_of_function
from ..tools.tool_registration import RegistersTools, register_function
from .chat_result import ChatResult
from .chats import FirstMessage

Tools = Callable[..., Any] | Iterable[Callable[..., Any]]


class Runs(RegistersTools, Protocol):
    """An agent that chats, with functions that it offers only in one chat."""

    @property
    def initiate_chat(self) -> Callable[..., ChatResult]: ...
    @property
    def a_initiate_chat(self) -> Callable[..., Awaitable[ChatResult]]: ...
    def update_tool_signature(self, tool_sig: str, is_remove: bool) -> None: ...
    def _new_user(self, **settings: Any) -> Runs: ...


def run_steps(
    agent: Runs,
    recipient: Any = None,
    *,
    message: FirstMessage = None,
    tools: Tools = (),
    executor_kwargs: dict[str, Any] | None = None,
    user_input: bool = False,
    msg_to: Literal["agent", "user"] = "agent",
    **options: Any,
) -> Steps[ChatResult]:
    """Hold a chat of `agent`; see `ConversableAgent.run`."""
    if recipient is not None:
        chat = Step(agent.initiate_chat, agent.a_initiate_chat)
        return (yield from chat(recipient, message=message, **options))
    with _user_with_tools(agent, tools, executor_kwargs, user_input) as user:
        opener, other = (user, agent) if msg_to == "agent" else (agent, user)
        chat = Step(opener.initiate_chat, opener.a_initiate_chat)
        return (yield from chat(other, message=message, **options))


@contextmanager
def _user_with_tools(
    agent: Runs, tools: Tools, options: dict[str, Any] | None, user_input: bool
) -> Generator[Runs]:
    """Yield an agent that executes `tools`, which only this chat offers to the model."""
    settings: dict[str, Any] = {
        "name": "user",
        "human_input_mode": "ALWAYS" if user_input else "NEVER",
        "llm_config": False,
        "is_termination_msg": _mentions_terminate,
        **(options or {}),
    }
    # The class of agents is above this module.
    user = agent._new_user(**settings)  # pyright: ignore[reportPrivateUsage]
    offered: list[str] = []
    try:
        for tool in (tools,) if callable(tools) else tools:
            name = name_of_function(tool)
            what = tool.__doc__ or name
            register_function(tool, caller=agent, executor=user, name=name, description=what)
            offered.append(name)
        yield user
    finally:
        for name in offered:
            agent.update_tool_signature(name, is_remove=True)


def _mentions_terminate(message: ChatMessage) -> bool:
    return "TERMINATE" in content_str(message.get("content"))
