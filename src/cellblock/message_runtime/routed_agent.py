"""RoutedAgent: an agent whose methods handle messages by their type."""

from __future__ import annotations

import inspect
import logging
import types
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ..cancellation import CancellationToken
from .agent_runtime import AgentRuntime
from .ids import AgentId, AgentType, MessageContext, TopicId
from .subscriptions import TypeSubscription

_log = logging.getLogger(__name__)

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
Match = Callable[[Any, MessageContext], bool]


@dataclass(frozen=True)
class _Route:
    """The messages that a method handles."""

    message_types: tuple[type, ...]
    match: Match
    return_types: tuple[Any, ...]

    def accepts(self, message: object, context: MessageContext) -> bool:
        return type(message) in self.message_types and self.match(message, context)

    def check_answer(self, answer: object, handler: str) -> None:
        """Raise `ValueError` if `answer` is of another type than the handler is annotated with."""
        try:
            is_right = isinstance(answer, self.return_types)
        except TypeError:
            return  # not all of them are classes
        if not is_right:
            names = " | ".join(each.__name__ for each in self.return_types)
            raise ValueError(
                f"The handler {handler} returned {answer!r:.100}, but is annotated to return "
                f"{names}. Return that, or change the annotation."
            )


def message_handler(
    func: Callable[..., Awaitable[Any]] | None = None,
    *,
    strict: bool = True,
    match: Match | None = None,
) -> Any:
    """Let a method `(self, message: T, ctx: MessageContext)` handle messages of type T.

    T may be a union. `match(message, ctx)` says which of them; all if it is not given. Handlers are
    tried in alphabetical order, and never called with another type. If `strict`, `ValueError` is
    raised for an answer of another type than the method is annotated to return.

    Raise `ValueError` for a method that is not async or has other parameters.
    """
    return _mark(func, match or _match_all, strict)


def event(
    func: Callable[..., Awaitable[None]] | None = None,
    *,
    strict: bool = True,
    match: Match | None = None,
) -> Any:
    """Do as `message_handler` does, for messages whose reply is not awaited."""
    also = match or _match_all
    return _mark(
        func, lambda message, context: not context.is_rpc and also(message, context), strict
    )


def rpc(
    func: Callable[..., Awaitable[Any]] | None = None,
    *,
    strict: bool = True,
    match: Match | None = None,
) -> Any:
    """Do as `message_handler` does, for messages whose sender waits for the answer."""
    also = match or _match_all
    return _mark(func, lambda message, context: context.is_rpc and also(message, context), strict)


def _match_all(message: object, context: MessageContext) -> bool:
    return True


def _mark(func: Callable[..., Awaitable[Any]] | None, match: Match, strict: bool) -> Any:
    def decorate(method: Handler) -> Handler:
        parameters = list(inspect.signature(method).parameters)
        hints = get_type_hints(method)
        if len(parameters) != 3 or parameters[1] not in hints:
            raise ValueError(
                f"{method.__qualname__} must have the parameters "
                "(self, message: TypeOfMessage, ctx: MessageContext)."
            )
        if not inspect.iscoroutinefunction(inspect.unwrap(method)):
            raise ValueError(f"{method.__qualname__} must be async. Write it with async def.")
        returns = _union_members(hints.get("return", Any)) if strict else (Any,)
        route = _Route(_union_members(hints[parameters[1]]), match, returns)
        cast(Any, method).route = route
        return method

    return decorate if func is None else decorate(func)


def _union_members(annotation: Any) -> tuple[type, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


class RoutedAgent:
    """An agent of a runtime. Subclass it, and decorate its handlers with `message_handler`.

    It is created by a runtime only, which gives it its `id`.
    """

    subscribed_topic_types: ClassVar[tuple[str, ...]] = ()
    _runtime: AgentRuntime
    _id: AgentId

    def __init__(self, description: str) -> None:
        self._description = description

    def bind(self, runtime: AgentRuntime, agent_id: AgentId) -> None:
        """Tell the agent its runtime and ID. The runtime calls it once."""
        self._runtime = runtime
        self._id = agent_id

    @property
    def id(self) -> AgentId:
        """The address of the agent."""
        return self._id

    @property
    def type(self) -> str:
        """The type that the agent is registered under."""
        return self._id.type

    @property
    def description(self) -> str:
        """What the agent does."""
        return self._description

    @property
    def runtime(self) -> AgentRuntime:
        """The runtime of the agent."""
        return self._runtime

    @classmethod
    async def register(
        cls,
        runtime: AgentRuntime,
        type: str,
        factory: Callable[[], Any],
        *,
        skip_class_subscriptions: bool = False,
    ) -> AgentType:
        """Register `factory`, which creates an agent of this class, under `type`.

        Subscribe `type` as the class says. Raise `ValueError` if `type` is taken.
        """
        await runtime.register_factory(type, factory, expected_class=cls)
        if not skip_class_subscriptions:
            for topic_type in cls.subscribed_topic_types:
                await runtime.add_subscription(TypeSubscription(topic_type, type))
        return AgentType(type)

    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        """Call the handler for `message` and return what it returns."""
        for name in sorted(dir(type(self))):
            route = getattr(getattr(type(self), name, None), "route", None)
            if isinstance(route, _Route) and route.accepts(message, ctx):
                answer = await getattr(self, name)(message, ctx)
                route.check_answer(answer, f"{type(self).__name__}.{name}")
                return answer
        return await self.on_unhandled_message(message, ctx)

    async def on_unhandled_message(self, message: Any, ctx: MessageContext) -> None:
        """Log a message that no handler accepts. Override it to do more."""
        if ctx.is_rpc:
            _log.warning(
                "%s has no handler for a %s. Its sender gets None.",
                self._id,
                type(message).__name__,
            )
        else:
            _log.info("%s has no handler for a %s", self._id, type(message).__name__)

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Send `message` to one agent and return its answer."""
        return await self._runtime.send_message(
            message,
            recipient,
            sender=self._id,
            cancellation_token=cancellation_token,
            message_id=message_id,
        )

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """Send `message` to all subscribers of `topic_id`, but not to this agent."""
        await self._runtime.publish_message(
            message,
            topic_id,
            sender=self._id,
            cancellation_token=cancellation_token,
            message_id=message_id,
        )

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state as JSON values. Override it together with `load_state`."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned."""

    async def close(self) -> None:
        """Release what the agent holds. The runtime calls it when it is closed."""
