"""The functions that an agent tries in order to find its reply."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, cast

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState
from ..errors import SenderRequired
from ..steps import Step, Steps, run, run_async

_OWN_PACKAGE = AgentState.__module__.removesuffix("agent_state")
ReplyFunction = Callable[..., Any]
"""`reply_function(recipient, messages, sender, config) -> (final, reply)`; it may be async."""


@dataclass(frozen=True)
class _Request:
    """What a reply is wanted for, and which functions were tried in an asynchronous chat."""

    messages: list[ChatMessage]
    sender: Agent | None
    exclude: list[ReplyFunction]
    tried: list[ReplyFunction] = field(default_factory=list[ReplyFunction])


class ReplyFunctions(AgentState):
    """Registers reply functions and asks them for a reply."""

    def register_reply(
        self,
        trigger: Any,
        reply_func: ReplyFunction,
        position: int = 0,
        config: Any = None,
        reset_config: Callable[[Any], Any] | None = None,
        *,
        ignore_async_in_sync_chat: bool = False,
        remove_other_reply_funcs: bool = False,
    ) -> None:
        """Try `reply_func` for messages of the senders that `trigger` matches.

        `trigger` is a class of agents, the name of an agent, an agent, a function
        `(sender) -> bool` or a list of those; None in a list matches messages without a sender.
        `reply_func(recipient, messages, sender, config)` returns `(final, reply)`; the next
        function is tried if `final` is False. It is tried before the others, or at `position` of
        them.

        `reset()` calls `reset_config(config)`, else sets `config` to a copy of what was passed.
        Asynchronous functions need `a_initiate_chat`, unless `ignore_async_in_sync_chat` is set.
        Raise `ValueError` if `trigger` is something else.
        """
        if not isinstance(trigger, type | str | Agent | list) and not callable(trigger):
            raise ValueError("trigger must be a class, a string, an agent, a callable or a list.")
        if remove_other_reply_funcs:
            self._reply_func_list.clear()
        entry = {
            "trigger": cast(Any, trigger),
            "reply_func": reply_func,
            "config": copy.copy(config),
            "init_config": config,
            "reset_config": reset_config,
            "ignore_async_in_sync_chat": ignore_async_in_sync_chat
            and inspect.iscoroutinefunction(reply_func),
        }
        self._reply_func_list.insert(position, entry)

    def replace_reply_func(
        self, old_reply_func: ReplyFunction, new_reply_func: ReplyFunction
    ) -> None:
        """Try `new_reply_func` where `old_reply_func` was registered."""
        for entry in self._reply_func_list:
            if entry["reply_func"] == old_reply_func:
                entry["reply_func"] = new_reply_func

    def generate_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        **kwargs: Any,
    ) -> str | ChatMessage | None:
        """Return the reply to `messages`, by default to those of `sender`; None for no reply.

        It is the reply of the first function that says that its reply is final, else
        `default_auto_reply`. Asynchronous functions are skipped, and those in the list `exclude`.
        Raise `AssertionError` if neither `messages` nor `sender` is passed.
        """
        return run(self._reply_steps(messages, sender, kwargs))

    async def a_generate_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        **kwargs: Any,
    ) -> str | ChatMessage | None:
        """Return the reply to `messages`, with asynchronous functions too.

        A built-in function is not called in addition to its asynchronous version.
        """
        return await run_async(self._reply_steps(messages, sender, kwargs))

    def _reply_steps(
        self,
        messages: list[ChatMessage] | None,
        sender: Agent | None,
        options: dict[str, Any],
    ) -> Steps[str | ChatMessage | None]:
        if messages is None:
            assert sender is not None, "Either messages=None or sender=None must be provided."
            messages = self._oai_messages[sender]
        hooked = yield from Step(self._apply_hooks, self._a_apply_hooks)(messages)
        request = _Request(hooked, sender, exclude=options.get("exclude") or [])
        for entry in list(self._reply_func_list):
            if entry["reply_func"] in request.exclude:
                continue
            if not self._match_trigger(entry["trigger"], sender):
                continue
            final, reply = yield from Step(self._try_reply, self._a_try_reply)(request, entry)
            if final:
                return reply
        return self._default_auto_reply

    def _apply_hooks(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        messages = self.process_last_received_message(messages)
        return self.process_all_messages_before_reply(messages)

    async def _a_apply_hooks(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        messages = await self.a_process_all_messages_before_reply(messages)
        return await self.a_process_last_received_message(messages)

    def _try_reply(self, request: _Request, entry: dict[str, Any]) -> tuple[bool, Any]:
        if _is_async(entry["reply_func"]):
            return False, None
        return _final_and_reply(
            self._call_reply_function(entry["reply_func"], request, entry["config"])
        )

    async def _a_try_reply(self, request: _Request, entry: dict[str, Any]) -> tuple[bool, Any]:
        """Prefer the asynchronous version; skip the function if that was tried before."""
        function = entry["reply_func"]
        asynchronous = self._async_version(function)
        if asynchronous in request.tried:
            return False, None
        if asynchronous is not None and asynchronous not in request.exclude:
            function = asynchronous
        request.tried.append(function)
        result = self._call_reply_function(function, request, entry["config"])
        if inspect.isawaitable(result):
            with self._naming_reply_function(function):
                result = await result
        return _final_and_reply(result)

    def _call_reply_function(self, function: ReplyFunction, request: _Request, config: Any) -> Any:
        with self._naming_reply_function(function):
            return function(self, messages=request.messages, sender=request.sender, config=config)

    def _async_version(self, function: ReplyFunction) -> ReplyFunction | None:
        """Return the method `a_NAME` of the class that has `function` as its method `NAME`.

        Only classes of this package count: in others the two may do different things.
        """
        name = getattr(function, "__name__", "")
        for part in type(self).__mro__:
            if vars(part).get(name) is function and part.__module__.startswith(_OWN_PACKAGE):
                return vars(part).get(f"a_{name}")
        return None

    @contextlib.contextmanager
    def _naming_reply_function(self, function: ReplyFunction) -> Generator[None]:
        """Add the name of `function` to an exception it raises."""
        try:
            yield
        except Exception as error:
            error.add_note(f"Reply function '{_name(function)}' of agent '{self.name}'.")
            raise

    def _match_trigger(self, trigger: Any, sender: Agent | None) -> bool:
        if trigger is None:
            return sender is None
        if isinstance(trigger, str):
            if sender is None:
                raise SenderRequired()
            return trigger == sender.name
        if isinstance(trigger, type):
            return isinstance(sender, trigger)
        if isinstance(trigger, Agent):
            return trigger == sender
        if isinstance(trigger, list):
            return any(self._match_trigger(each, sender) for each in cast(list[Any], trigger))
        if callable(trigger):
            return bool(trigger(sender))
        raise ValueError(f"Unsupported trigger type: {type(trigger)}")

    def _raise_exception_on_async_reply_functions(self) -> None:
        """Raise `RuntimeError` if a synchronous chat would skip a reply function."""
        names = [
            _name(entry["reply_func"])
            for entry in self._reply_func_list
            if _is_async(entry["reply_func"]) and not entry["ignore_async_in_sync_chat"]
        ]
        if names:
            raise RuntimeError(
                "Async reply functions can only be used with ConversableAgent.a_initiate_chat(). "
                f"The following async reply functions are found: {', '.join(names)}"
            )

    def _reset_reply_configs(self) -> None:
        for entry in self._reply_func_list:
            if entry["reset_config"] is not None:
                entry["reset_config"](entry["config"])
            else:
                entry["config"] = copy.copy(entry["init_config"])


def _is_async(function: ReplyFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _name(function: ReplyFunction) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _final_and_reply(result: Any) -> tuple[bool, Any]:
    if not isinstance(result, tuple) or len(cast(tuple[Any, ...], result)) != 2:
        raise TypeError(f"A reply function must return (final, reply), not {result!r}.")
    return cast(tuple[bool, Any], result)
