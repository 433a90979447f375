"""SingleThreadedAgentRuntime: creates agents, and delivers messages one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from ..aio.running_loop import running_loop
from ..cancellation import CancellationToken
from ..tracing import Span, continued, genai_span, present_context
from .agent_runtime import AgentRuntime
from .ids import AgentId, AgentType, MessageContext, TopicId, current_agent
from .routed_agent import RoutedAgent
from .subscriptions import TypeSubscription

_log = logging.getLogger(__name__)
AgentT = TypeVar("AgentT", bound=RoutedAgent)


class UndeliverableException(Exception):
    """A message was sent to a type of agent that is not registered."""


class CantHandleException(Exception):
    """Raised by a handler to refuse a message."""


class MessageDroppedException(Exception):
    """An intervention handler has dropped the message, or the answer to it."""


class DropMessage:
    """What an intervention handler returns to drop a message: this class, or an object of it."""


class InterventionHandler(Protocol):
    """Sees every message before it is delivered, and every answer.

    Each method returns the message, changed or not, or `DropMessage`. None changes nothing, with a
    `RuntimeWarning`.
    """

    async def on_send(
        self, message: Any, *, message_context: MessageContext, recipient: AgentId
    ) -> Any:
        """Change a message to one agent. The sender gets what is raised here."""
        ...

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        """Change a message to a topic. What is raised here is logged, and drops the message."""
        ...

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        """Change the answer of `sender` to `recipient`, which gets what is raised here."""
        ...


class DefaultInterventionHandler(InterventionHandler):
    """Changes nothing. Subclasses override what they need."""

    async def on_send(
        self, message: Any, *, message_context: MessageContext, recipient: AgentId
    ) -> Any:
        """Return `message`."""
        return message

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        """Return `message`."""
        return message

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        """Return `message`."""
        return message


@dataclass
class _Delivery:
    """A message on its way to `recipient`. `answer` is None if no reply is awaited.

    sent_in   what the spans of its handler are below
    """

    message: Any
    recipient: AgentId
    context: MessageContext
    answer: asyncio.Future[Any] | None = None
    sent_in: object = field(default_factory=present_context)


@dataclass
class _Registration:
    factory: Callable[[], Any]
    expected_class: type[RoutedAgent] | None
    agents: dict[str, RoutedAgent] = field(default_factory=dict[str, RoutedAgent])


class SingleThreadedAgentRuntime(AgentRuntime):
    """Deliver messages between agents, on one event loop.

    Messages are handled in the order in which they were sent; each is handled in its own task.

    An exception of a handler whose reply is not awaited ends the runtime, and `stop`, `stop_when`
    and `stop_when_idle` raise it. With `ignore_unhandled_exceptions` it is logged instead.

    Each of `intervention_handlers` gets the messages as the one before it has changed them.
    """

    def __init__(
        self,
        *,
        intervention_handlers: Sequence[InterventionHandler] | None = None,
        ignore_unhandled_exceptions: bool = True,
    ) -> None:
        self._intervention_handlers = intervention_handlers or ()
        self._ignores_exceptions = ignore_unhandled_exceptions
        self._registrations: dict[str, _Registration] = {}
        self._subscriptions: list[TypeSubscription] = []
        self._queue: asyncio.Queue[_Delivery] = asyncio.Queue()
        self._handling: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._message_handled = asyncio.Event()
        self._failure: BaseException | None = None

    # agents

    async def register_factory(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], Any],
        *,
        expected_class: type[Any] | None = None,
    ) -> AgentType:
        """See `AgentRuntime.register_factory`."""
        name = type.type if isinstance(type, AgentType) else type
        if not callable(agent_factory):
            raise ValueError(
                f"The factory of {name!r} must be a function that creates the agent, such as its "
                f"class, not {agent_factory!r:.100}."
            )
        if name in self._registrations:
            raise ValueError(f"Agent with type {name} already exists.")
        self._registrations[name] = _Registration(agent_factory, expected_class)
        return AgentType(name)

    async def add_subscription(self, subscription: TypeSubscription) -> None:
        """See `AgentRuntime.add_subscription`."""
        if subscription in self._subscriptions:
            raise ValueError("Subscription already exists")
        self._subscriptions.append(subscription)

    async def remove_subscription(self, id: str) -> None:
        """Remove the subscription with this `id`. Raise `ValueError` if there is none."""
        found = [each for each in self._subscriptions if each.id == id]
        if not found:
            raise ValueError("Subscription does not exist")
        self._subscriptions.remove(found[0])

    async def get(
        self, id_or_type: AgentId | AgentType | str, /, key: str = "default", *, lazy: bool = True
    ) -> AgentId:
        """Return the ID of an agent. Create the agent unless `lazy`."""
        agent_id = id_or_type if isinstance(id_or_type, AgentId) else AgentId(id_or_type, key)
        if not lazy:
            await self._find_agent(agent_id)
        return agent_id

    async def try_get_underlying_agent_instance(
        self, id: AgentId, type: type[AgentT] = RoutedAgent
    ) -> AgentT:
        """Return the agent with this `id`. Create it if it does not exist.

        Raise `LookupError` if its type is not registered, `TypeError` if it is not a `type`.
        """
        if id.type not in self._registrations:
            raise LookupError(f"Agent with name {id.type} not found.")
        agent = await self._find_agent(id)
        if not isinstance(agent, type):
            raise TypeError(f"Agent {id} is a {agent.__class__.__name__}, not a {type.__name__}.")
        return agent

    # messages

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """See `AgentRuntime.send_message`."""
        _check_address("recipient", recipient, AgentId)
        if recipient.type not in self._registrations:
            raise UndeliverableException(
                f"No agent type {recipient.type!r} is registered, so {recipient} cannot be reached."
            )
        answer: asyncio.Future[Any] = running_loop().create_future()
        context = _context(sender, None, cancellation_token, message_id)
        message = await self._intervene(
            "on_send", message, message_context=context, recipient=recipient
        )
        context.cancellation_token.link_future(answer)
        await self._queue.put(_Delivery(message, recipient, context, answer))
        if self._loop_task is None:
            _log.warning(
                "A message to %s waits, because the runtime is not started. Call start().",
                recipient,
            )
        return await answer

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """See `AgentRuntime.publish_message`."""
        _check_address("topic_id", topic_id, TopicId)
        context = _context(sender, topic_id, cancellation_token, message_id)
        try:
            message = await self._intervene("on_publish", message, message_context=context)
        except MessageDroppedException:
            return
        except Exception:  # a handler may raise anything
            _log.exception("An intervention handler failed on a message to %s", topic_id)
            return
        recipients = {
            each.map_to_agent(topic_id): None
            for each in self._subscriptions
            if each.is_match(topic_id)
        }
        for recipient in recipients:
            if recipient != sender:
                await self._queue.put(_Delivery(message, recipient, context))

    async def _intervene(self, method: str, message: Any, **details: Any) -> Any:
        """Return `message` as the handlers change it. Raise `MessageDroppedException`."""
        for handler in self._intervention_handlers:
            changed = await getattr(handler, method)(message, **details)
            if changed is DropMessage or isinstance(changed, DropMessage):
                raise MessageDroppedException(f"{type(handler).__name__} dropped the message.")
            if changed is not None:
                message = changed
            elif message is not None:
                warnings.warn(
                    f"{type(handler).__name__}.{method} returned None, which changes nothing. "
                    "Return the message, or DropMessage.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return message

    # running

    def start(self) -> None:
        """Start to deliver messages. Raise `RuntimeError` if it is started already."""
        if self._loop_task is not None:
            raise RuntimeError("Runtime is already started")
        self._failure = None
        self._loop_task = running_loop().create_task(self._deliver())

    async def stop(self) -> None:
        """Stop now: cancel the handlers that run. Undelivered messages stay in the queue."""
        await self._end()

    async def stop_when_idle(self) -> None:
        """Stop when no message is left and no handler runs."""
        await self.stop_when(lambda: False)

    async def stop_when(self, condition: Callable[[], bool]) -> None:
        """Stop when `condition()` is true after a message, or when no message is left."""
        if self._loop_task is None:
            raise RuntimeError("Runtime is not started")
        while not (condition() or self._failure is not None or self._is_idle()):
            self._message_handled.clear()
            await self._message_handled.wait()
        await self._end()

    async def close(self) -> None:
        """Stop, and close all agents."""
        if self._loop_task is not None:
            await self._end()
        for registration in self._registrations.values():
            for agent in registration.agents.values():
                await agent.close()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the states of all agents that exist, by ID."""
        return {
            str(agent.id): dict(await agent.save_state())
            for registration in self._registrations.values()
            for agent in registration.agents.values()
        }

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Give the agents of registered types what `save_state` returned."""
        for text, values in state.items():
            agent_id = AgentId.from_str(text)
            if agent_id.type in self._registrations:
                await (await self._find_agent(agent_id)).load_state(values)

    async def _end(self) -> None:
        if self._loop_task is None:
            raise RuntimeError("Runtime is not started")
        tasks = [self._loop_task, *self._handling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop_task = None
        if self._failure is not None:
            raise self._failure

    async def _deliver(self) -> None:
        while True:
            task = asyncio.create_task(self._handle(await self._queue.get()))
            self._handling.add(task)
            task.add_done_callback(self._end_handling)

    def _end_handling(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._message_handled.set()

    @property
    def unprocessed_messages_count(self) -> int:
        """How many messages wait to be delivered."""
        return self._queue.qsize()

    def _is_idle(self) -> bool:
        return self._queue.empty() and not self._handling

    async def _handle(self, envelope: _Delivery) -> None:
        answer = envelope.answer
        try:
            agent = await self._find_agent(envelope.recipient)
            current_agent.set(envelope.recipient)
            with continued(envelope.sent_in), _handler_span(envelope.recipient):
                result = await _or_cancelled(
                    agent.on_message(envelope.message, envelope.context), answer
                )
            if answer is not None:
                result = await self._intervene(
                    "on_response",
                    result,
                    sender=envelope.recipient,
                    recipient=envelope.context.sender,
                )
        except asyncio.CancelledError:
            if answer is not None:
                answer.cancel()
            raise
        except Exception as error:  # a handler may raise anything; its sender or the log gets it
            if answer is not None:
                if not answer.done():
                    answer.set_exception(error)
            elif self._ignores_exceptions:
                _log.exception("%s failed on a message", envelope.recipient)
            else:
                self._failure = self._failure or error
        else:
            if answer is not None and not answer.done():
                answer.set_result(result)

    async def _find_agent(self, agent_id: AgentId) -> RoutedAgent:
        registration = self._registrations.get(agent_id.type)
        if registration is None:
            raise LookupError(f"Agent with name {agent_id.type} not found.")
        if agent_id.key not in registration.agents:
            agent = registration.factory()
            if inspect.isawaitable(agent):
                agent = await agent
            expected = registration.expected_class or RoutedAgent
            if type(agent) is not expected and registration.expected_class is not None:
                raise ValueError(
                    f"The factory of {agent_id.type!r} returned a {type(agent).__name__}, "
                    f"not a {expected.__name__}."
                )
            cast(RoutedAgent, agent).bind(self, agent_id)
            # A factory that waits may have been called twice: the first agent stays.
            registration.agents.setdefault(agent_id.key, agent)
        return registration.agents[agent_id.key]


def _handler_span(agent: AgentId) -> Span:
    attributes = {"gen_ai.agent.name": agent.type, "gen_ai.agent.id": str(agent)}
    return genai_span("invoke_agent", agent.type, attributes)


async def _or_cancelled(work: Any, answer: asyncio.Future[Any] | None) -> Any:
    """Return the result of `work`. Cancel it if the sender no longer waits for `answer`."""
    task = asyncio.ensure_future(work)
    if answer is not None:
        answer.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
    try:
        return await task
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _check_address(name: str, address: object, kind: type[AgentId | TopicId]) -> None:
    if not isinstance(address, kind):
        raise ValueError(
            f"{name} must be an address such as {kind.__name__}({str(address)!r:.100}, 'default'), "
            f"not {address!r:.100}."
        )


def _context(
    sender: AgentId | None,
    topic_id: TopicId | None,
    token: CancellationToken | None,
    message_id: str | None,
) -> MessageContext:
    return MessageContext(
        sender=sender,
        topic_id=topic_id,
        is_rpc=topic_id is None,
        cancellation_token=token or CancellationToken(),
        message_id=message_id or str(uuid.uuid4()),
    )
