"""TerminationCondition: when a team stops. Conditions are combined with `&` and `|`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from ..agents.base import is_transient
from ..agents.messages import AgentMessage, StopMessage
from ..components import Component
from ..errors import ComponentError, TerminatedException


class TerminationCondition(Component, ABC):
    """Decide whether a conversation stops, from the messages that are new since the last call.

    A condition keeps state: once it is reached, it must be reset before it is asked again. A team
    does that when it stops. Transient events never count.
    """

    component_type: ClassVar[str] = "termination"

    @property
    @abstractmethod
    def terminated(self) -> bool:
        """True if the condition was reached and not reset."""

    @abstractmethod
    async def __call__(self, messages: Sequence[AgentMessage]) -> StopMessage | None:
        """Return the reason to stop after the new `messages`, or None.

        Raise `TerminatedException` if the condition was reached already.
        """

    @abstractmethod
    async def reset(self) -> None:
        """Start again."""

    def __and__(self, other: TerminationCondition) -> TerminationCondition:
        return AndTerminationCondition(self, other)

    def __or__(self, other: TerminationCondition) -> TerminationCondition:
        return OrTerminationCondition(self, other)


class BaseTerminationCondition(TerminationCondition, ABC):
    """Base of your own conditions: implement `find_reason`, and `reset` if it keeps more state.

    `arguments` are those that the condition was created from. They are its saved configuration.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._terminated = False

    @property
    def terminated(self) -> bool:
        """True if the condition was reached and not reset."""
        return self._terminated

    async def __call__(self, messages: Sequence[AgentMessage]) -> StopMessage | None:
        """See `TerminationCondition`."""
        _check_not_terminated(self)
        reason = await self.find_reason([each for each in messages if not is_transient(each)])
        if reason is None:
            return None
        self._terminated = True
        return StopMessage(content=reason, source=type(self).__name__)

    @abstractmethod
    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """Return the reason to stop after the new `messages`, or None."""

    async def reset(self) -> None:
        """Start again."""
        self._terminated = False

    def _to_config(self) -> dict[str, object]:
        return dict(self._arguments)

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        return cls(**config)


class _Combination(TerminationCondition, ABC):
    def __init__(self, *conditions: TerminationCondition) -> None:
        for condition in conditions:
            check_condition(condition)
        self._conditions = conditions

    async def reset(self) -> None:
        """Reset every condition."""
        for condition in self._conditions:
            await condition.reset()

    def _to_config(self) -> dict[str, object]:
        return {"conditions": [each.dump_component().to_dict() for each in self._conditions]}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        saved = config["conditions"]
        if not isinstance(saved, list):
            raise ComponentError(f"conditions must be a list, not {saved!r:.200}.")
        return cls(*(TerminationCondition.load_component(each) for each in cast(list[Any], saved)))


class AndTerminationCondition(_Combination):
    """Stop when all `conditions` were reached, at the same time or one after the other."""

    def __init__(self, *conditions: TerminationCondition) -> None:
        super().__init__(*conditions)
        self._reached: list[StopMessage] = []

    @property
    def terminated(self) -> bool:
        """True if all conditions were reached."""
        return all(condition.terminated for condition in self._conditions)

    async def __call__(self, messages: Sequence[AgentMessage]) -> StopMessage | None:
        """See `TerminationCondition`. A condition that was reached is not asked again."""
        _check_not_terminated(self)
        waiting = [condition for condition in self._conditions if not condition.terminated]
        answers = [await condition(messages) for condition in waiting]
        self._reached += [answer for answer in answers if answer is not None]
        return None if None in answers else _join(self._reached)

    async def reset(self) -> None:
        """Reset every condition."""
        await super().reset()
        self._reached.clear()


class OrTerminationCondition(_Combination):
    """Stop when one of `conditions` is reached."""

    @property
    def terminated(self) -> bool:
        """True if a condition was reached."""
        return any(condition.terminated for condition in self._conditions)

    async def __call__(self, messages: Sequence[AgentMessage]) -> StopMessage | None:
        """See `TerminationCondition`. Every condition is asked, so that each one counts on."""
        _check_not_terminated(self)
        answers = [await condition(messages) for condition in self._conditions]
        reached = [answer for answer in answers if answer is not None]
        return _join(reached) if reached else None


def check_condition(condition: object) -> None:
    """Raise `ValueError` if `condition` is not a termination condition."""
    if not isinstance(condition, TerminationCondition):
        raise ValueError(
            "A termination condition must be an object such as MaxMessageTermination(10), "
            f"not {condition!r:.100}."
        )


def _join(messages: Sequence[StopMessage]) -> StopMessage:
    return StopMessage(
        content=", ".join(message.content for message in messages),
        source=", ".join(message.source for message in messages),
    )


def _check_not_terminated(condition: TerminationCondition) -> None:
    if condition.terminated:
        raise TerminatedException("Termination condition has already been reached")
