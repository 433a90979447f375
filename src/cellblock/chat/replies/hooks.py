"""Hooks: functions of the caller that change messages on their way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState
from ..steps import Step, Steps, run, run_async

Hook = Callable[..., Any]

HOOKABLE_METHODS = (
    "process_last_received_message",
    "a_process_last_received_message",
    "process_all_messages_before_reply",
    "a_process_all_messages_before_reply",
    "process_message_before_send",
    "a_process_message_before_send",
)


class Hooks(AgentState):
    """Registers hooks and runs them.

    A synchronous chat runs the hooks of the names without `a_`, an asynchronous one those with it.
    """

    def register_hook(self, hookable_method: str, hook: Hook) -> None:
        """Run `hook` with what the method `hookable_method` processes.

        - `process_last_received_message`: `hook(content) -> content`
        - `process_all_messages_before_reply`: `hook(messages) -> messages`
        - `process_message_before_send`: `hook(sender, message, recipient, silent) -> message`,
          called with keywords

        Each has a version for asynchronous chats, with `a_` before its name. Raise
        `AssertionError` if the name is unknown or the hook is registered already, and `TypeError`
        if the hook is asynchronous and the name is not.
        """
        assert hookable_method in self.hook_lists, f"{hookable_method} is not a hookable method."
        hooks = self.hook_lists[hookable_method]
        assert hook not in hooks, f"{hook} is already registered as a hook."
        if inspect.iscoroutinefunction(hook) and not hookable_method.startswith("a_"):
            raise TypeError(
                f"The hook {_name(hook)!r} is asynchronous. "
                f"Register it for 'a_{hookable_method}', or pass a synchronous function."
            )
        hooks.append(hook)

    def process_last_received_message(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return `messages` with the content of the last one as the hooks change it.

        The stored message changes as well. A function call, a message with a `context` and the
        text `exit` are left as they are.
        """
        return run(_last_message_steps(self.hook_lists["process_last_received_message"], messages))

    async def a_process_last_received_message(
        self, messages: list[ChatMessage]
    ) -> list[ChatMessage]:
        """Do what `process_last_received_message` does, with the asynchronous hooks."""
        hooks = self.hook_lists["a_process_last_received_message"]
        return await run_async(_last_message_steps(hooks, messages))

    def process_all_messages_before_reply(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return `messages` as the hooks change them, for one reply. What is stored stays."""
        hooks = self.hook_lists["process_all_messages_before_reply"]
        return run(_all_messages_steps(hooks, messages))

    async def a_process_all_messages_before_reply(
        self, messages: list[ChatMessage]
    ) -> list[ChatMessage]:
        """Do what `process_all_messages_before_reply` does, with the asynchronous hooks."""
        hooks = self.hook_lists["a_process_all_messages_before_reply"]
        return await run_async(_all_messages_steps(hooks, messages))

    def _process_message_before_send(
        self, message: ChatMessage | str, recipient: Agent, silent: bool | None
    ) -> ChatMessage | str:
        hooks = self.hook_lists["process_message_before_send"]
        return run(self._message_to_send_steps(hooks, message, recipient, silent))

    async def _a_process_message_before_send(
        self, message: ChatMessage | str, recipient: Agent, silent: bool | None
    ) -> ChatMessage | str:
        hooks = self.hook_lists["a_process_message_before_send"]
        return await run_async(self._message_to_send_steps(hooks, message, recipient, silent))

    def _message_to_send_steps(
        self, hooks: list[Hook], message: ChatMessage | str, recipient: Agent, silent: bool | None
    ) -> Steps[ChatMessage | str]:
        for hook in hooks:
            message = yield from _call(
                hook, sender=self, message=message, recipient=recipient, silent=silent
            )
        return message


def _last_message_steps(hooks: list[Hook], messages: list[ChatMessage]) -> Steps[list[ChatMessage]]:
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


def _is_hookable(content: object) -> bool:
    return isinstance(content, str | list) and content != "exit"


def _all_messages_steps(hooks: list[Hook], messages: list[ChatMessage]) -> Steps[list[ChatMessage]]:
    for hook in hooks if messages else ():
        messages = yield from _call(hook, messages)
    return messages


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
