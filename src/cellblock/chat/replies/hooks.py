"""Hooks: functions of the caller that change messages on their way."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from ..agent import Agent, ChatMessage
from ..steps import Step, Steps

Hook = Callable[..., Any]

HOOKABLE_METHODS = (
    "process_last_received_message",
    "a_process_last_received_message",
    "process_all_messages_before_reply",
    "a_process_all_messages_before_reply",
    "process_message_before_send",
    "a_process_message_before_send",
    "update_agent_state",
)


class Hooks:
    """Keeps hooks and runs them.

    A synchronous chat runs the hooks of the names without `a_`, an asynchronous one those with it.
    """

    def __init__(self) -> None:
        self.lists: dict[str, list[Hook]] = {name: [] for name in HOOKABLE_METHODS}

    def register(self, name: str, hook: Hook) -> None:
        """Add `hook` to those of `name`; see `ConversableAgent.register_hook`."""
        assert name in self.lists, f"{name} is not a hookable method."
        assert hook not in self.lists[name], f"{hook} is already registered as a hook."
        is_async = inspect.iscoroutinefunction(hook)
        if is_async and not name.startswith("a_"):
            raise TypeError(
                f"The hook {_name(hook)!r} is asynchronous. "
                f"Register it for 'a_{name}', or pass a synchronous function."
            )
        if not is_async and name.startswith("a_"):
            warnings.warn(
                f"Hook {_name(hook)!r} is synchronous, but it's being registered in a asynchronous "
                f"context ({name!r}). It runs, and holds up the event loop until it returns.",
                stacklevel=4,
            )
        self.lists[name].append(hook)

    def last_message_steps(self, messages: list[ChatMessage]) -> Steps[list[ChatMessage]]:
        """Change the content of the last of `messages`, which is stored, and return them."""
        hooks = yield from self._hooks_steps("process_last_received_message")
        if not hooks or not messages:
            return messages
        last = messages[-1]
        content = last.get("content")
        if "function_call" in last or "context" in last or not _is_hookable(content):
            return messages
        for hook in hooks:
            content = yield from _call(hook, content)
        last["content"] = content
        return messages

    def all_messages_steps(self, messages: list[ChatMessage]) -> Steps[list[ChatMessage]]:
        """Return `messages` as the hooks change them."""
        hooks = yield from self._hooks_steps("process_all_messages_before_reply")
        for hook in hooks if messages else ():
            messages = yield from _call(hook, messages)
        return messages

    def message_to_send_steps(
        self,
        sender: object,
        message: ChatMessage | str,
        recipient: Agent,
        silent: bool | None,
    ) -> Steps[ChatMessage | str]:
        """Return `message` as the hooks of `sender` change it."""
        for hook in (yield from self._hooks_steps("process_message_before_send")):
            message = yield from _call(
                hook, sender=sender, message=message, recipient=recipient, silent=silent
            )
        return message

    def _hooks_steps(self, name: str) -> Steps[list[Hook]]:
        async def asynchronous_hooks() -> list[Hook]:
            return self.lists[f"a_{name}"]

        return (yield Step(lambda: self.lists[name], asynchronous_hooks))


def _is_hookable(content: object) -> bool:
    return isinstance(content, str | list) and content != "exit"


def _call(hook: Hook, *arguments: Any, **options: Any) -> Steps[Any]:
    async def call_and_await() -> Any:
        result = hook(*arguments, **options)
        return await result if inspect.isawaitable(result) else result

    result = yield Step(lambda: hook(*arguments, **options), call_and_await)
    if result is None:
        raise TypeError(
            f"The hook {_name(hook)!r} returned None. Return what it received, changed or not."
        )
    return result


def _name(hook: Hook) -> str:
    return getattr(hook, "__name__", repr(hook))
