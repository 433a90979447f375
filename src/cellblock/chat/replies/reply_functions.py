"""The functions that an agent tries in order to find its reply."""

# Private methods of agents have AutoGen's names, and users override them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, cast

from ..agent import Agent, ChatMessage
from ..errors import SenderRequired
from ..steps import Step, Steps

_OWN_PACKAGE = Agent.__module__.removesuffix("agent")
ReplyFunction = Callable[..., Any]
"""`reply_function(recipient, messages, sender, config) -> (final, reply)`; it may be async."""


class TriesReplies(Protocol):
    """An agent that finds its reply with reply functions."""

    @property
    def name(self) -> str: ...
    def _match_trigger(self, trigger: Any, sender: Agent | None) -> bool: ...


class ReplyEntry(TypedDict):
    """A reply function; see `ConversableAgent.register_reply`."""

    trigger: Any
    reply_func: ReplyFunction
    config: Any
    init_config: Any
    reset_config: Callable[[Any], Any] | None
    ignore_async_in_sync_chat: bool


class ReplyFunctions:
    """Keeps reply functions and asks them for a reply.

    `default` is the reply if none of the `entries` has one.
    """

    def __init__(self, default: str | ChatMessage) -> None:
        self.entries: list[ReplyEntry] = []
        self.default = default

    def add(
        self,
        position: int,
        *,
        trigger: Any,
        reply_func: ReplyFunction,
        config: Any,
        reset_config: Callable[[Any], Any] | None,
        ignore_async_in_sync_chat: bool,
    ) -> None:
        """Add a function at `position`; see `ConversableAgent.register_reply`."""
        entry: ReplyEntry = {
            "trigger": trigger,
            "reply_func": reply_func,
            "config": copy.copy(config),
            "init_config": config,
            "reset_config": reset_config,
            "ignore_async_in_sync_chat": ignore_async_in_sync_chat
            and inspect.iscoroutinefunction(reply_func),
        }
        self.entries.insert(position, entry)

    def replace(self, old: ReplyFunction, new: ReplyFunction) -> None:
        """Try `new` where `old` was registered."""
        for entry in self.entries:
            if entry["reply_func"] == old:
                entry["reply_func"] = new

    def reply_steps(
        self,
        agent: TriesReplies,
        messages: list[ChatMessage],
        sender: Agent | None,
        exclude: list[ReplyFunction],
    ) -> Steps[str | ChatMessage | None]:
        """Return the reply of `agent` to `messages`, without the functions `exclude`."""
        request = _Request(agent, messages, sender, exclude)
        for entry in list(self.entries):
            if entry["reply_func"] in exclude:
                continue
            if not agent._match_trigger(entry["trigger"], sender):
                continue
            final, reply = yield from Step(request.attempt, request.a_attempt)(entry)
            if final:
                return reply
        return self.default

    def refuse_async(self) -> None:
        """Raise `RuntimeError` if a synchronous chat would skip a reply function."""
        names = [
            _name(entry["reply_func"])
            for entry in self.entries
            if _is_async(entry["reply_func"]) and not entry["ignore_async_in_sync_chat"]
        ]
        if names:
            raise RuntimeError(
                "Async reply functions can only be used with ConversableAgent.a_initiate_chat(). "
                f"The following async reply functions are found: {', '.join(names)}"
            )

    def reset_configs(self) -> None:
        """Put the configs back to what they were."""
        for entry in self.entries:
            if entry["reset_config"] is not None:
                entry["reset_config"](entry["config"])
            else:
                entry["config"] = copy.copy(entry["init_config"])


@dataclass(frozen=True)
class _Request:
    """What a reply is wanted for, and which functions were tried in an asynchronous chat."""

    agent: TriesReplies
    messages: list[ChatMessage]
    sender: Agent | None
    exclude: list[ReplyFunction]
    tried: list[ReplyFunction] = field(default_factory=list[ReplyFunction])

    def attempt(self, entry: ReplyEntry) -> tuple[bool, Any]:
        if _is_async(entry["reply_func"]):
            return False, None
        return _final_and_reply(self._call(entry["reply_func"], entry["config"]))

    async def a_attempt(self, entry: ReplyEntry) -> tuple[bool, Any]:
        """Prefer the asynchronous version; skip the function if that was tried before."""
        function = entry["reply_func"]
        asynchronous = self._async_version(function)
        if asynchronous in self.tried:
            return False, None
        if asynchronous is not None and asynchronous not in self.exclude:
            function = asynchronous
        self.tried.append(function)
        result = self._call(function, entry["config"])
        if inspect.isawaitable(result):
            with self._naming(function):
                result = await result
        return _final_and_reply(result)

    def _call(self, function: ReplyFunction, config: Any) -> Any:
        with self._naming(function):
            return function(self.agent, messages=self.messages, sender=self.sender, config=config)

    def _async_version(self, function: ReplyFunction) -> ReplyFunction | None:
        """Return the method `a_NAME` of the class that has `function` as its method `NAME`.

        Only classes of this package count: in others the two may do different things.
        """
        name = getattr(function, "__name__", "")
        for part in type(self.agent).__mro__:
            if vars(part).get(name) is function and part.__module__.startswith(_OWN_PACKAGE):
                return vars(part).get(f"a_{name}")
        return None

    @contextlib.contextmanager
    def _naming(self, function: ReplyFunction) -> Generator[None]:
        """Add the name of `function` to an exception it raises."""
        try:
            yield
        except Exception as error:
            error.add_note(f"Reply function '{_name(function)}' of agent '{self.agent.name}'.")
            raise


def check_trigger(trigger: object) -> None:
    """Raise `ValueError` if `trigger` matches nothing."""
    if not isinstance(trigger, type | str | Agent | list) and not callable(trigger):
        raise ValueError("trigger must be a class, a string, an agent, a callable or a list.")


def matches(trigger: Any, sender: Agent | None) -> bool:
    """Return True if `trigger` matches messages of `sender`."""
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
        return any(matches(each, sender) for each in cast(list[Any], trigger))
    if callable(trigger):
        return bool(trigger(sender))
    raise ValueError(f"Unsupported trigger type: {type(trigger)}")


def _is_async(function: ReplyFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _name(function: ReplyFunction) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _final_and_reply(result: Any) -> tuple[bool, Any]:
    if not isinstance(result, tuple | list) or len(cast(Sequence[Any], result)) != 2:
        raise TypeError(f"A reply function must return (final, reply), not {result!r}.")
    final, reply = cast(Sequence[Any], result)
    return final, reply
