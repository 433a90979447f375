"""BaseGroupChat: participants take turns in one conversation. A run is one loop: `run_stream`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, cast

from ..agents.agent_spans import trace_agent
from ..agents.base import (
    ChatAgent,
    Response,
    Task,
    TaskResult,
    is_transient,
    task_messages,
    trace_answer,
)
from ..agents.cancellable import until_cancelled
from ..agents.messages import (
    AgentMessage,
    BaseChatMessage,
    MessageFactory,
    SelectSpeakerEvent,
    StructuredMessage,
)
from ..cancellation import CancellationToken
from ..components import load_component
from ..errors import AgentError, ComponentError
from .base import Team
from .state import ManagerState, ParticipantState, TeamState, read_state
from .termination import TerminationCondition, check_condition

Participant = ChatAgent | Team
ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class _EndOfTurn:
    stop_reason: str | None


class BaseGroupChat(Team, ABC):
    """Base of your own teams: implement `_select_speaker` and the state of the turn order.

    participants            agents and teams with different names
    name, description       None means the defaults of the class
    termination_condition   when the team stops; None means never
    max_turns               the team stops after so many turns; None means never
    runtime                 is accepted, and not used: a team is a plain loop
    custom_message_types    your own message and event classes. Without it, a run refuses them,
                            and so does `load_state`
    emit_team_events        report each choice of a speaker as a `SelectSpeakerEvent`
    """

    DEFAULT_NAME: ClassVar[str]
    DEFAULT_DESCRIPTION: ClassVar[str] = "A team of agents."
    # The source of the team's own events, and the key of its state.
    MANAGER_NAME: ClassVar[str]

    def __init__(
        self,
        participants: Sequence[Participant],
        *,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        runtime: object = None,
        custom_message_types: Sequence[type[AgentMessage]] | None = None,
        emit_team_events: bool = False,
    ) -> None:
        if not participants:
            raise ValueError("At least one participant is required.")
        for participant in participants:
            if not isinstance(participant, ChatAgent | Team):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                raise ValueError(f"A participant must be an agent or a team, not {participant!r}.")
        if len({participant.name for participant in participants}) < len(participants):
            raise ValueError("The participant names must be unique.")
        if max_turns is not None and max_turns <= 0:
            raise ValueError("The maximum number of turns must be greater than 0.")
        if termination_condition is not None:
            check_condition(termination_condition)
        self._participants = {participant.name: participant for participant in participants}
        self._name = name or self.DEFAULT_NAME
        self._description = description or self.DEFAULT_DESCRIPTION
        self._termination_condition = termination_condition
        self._max_turns = max_turns
        self._emit_team_events = emit_team_events
        self._custom_message_types = list(custom_message_types or ())
        self._message_factory = MessageFactory()
        for message_type in [*self._custom_message_types, *_structured_types(participants)]:
            self._message_factory.register(message_type)
        # The conversation, and what each participant has not received yet of it.
        self._thread: list[AgentMessage] = []
        self._unread: dict[str, list[BaseChatMessage]] = {name: [] for name in self._participants}
        # What the termination condition has not seen yet.
        self._unchecked: list[AgentMessage] = []
        # Messages of a task that is not done. If it failed, they may come again.
        self._unanswered: set[str] = set()
        self._current_turn = 0
        self._is_running = False

    @property
    def name(self) -> str:
        """The name, unique among the participants of a team."""
        return self._name

    @property
    def description(self) -> str:
        """What the team can do."""
        return self._description

    # the run

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Do `task` and return the transcript. See `Team`."""
        stream = self.run_stream(
            task=task,
            cancellation_token=cancellation_token,
            output_task_messages=output_task_messages,
        )
        async with aclosing(stream):
            async for item in stream:
                if isinstance(item, TaskResult):
                    return item
        raise AssertionError("run_stream ends with a TaskResult")

    async def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[AgentMessage | TaskResult, None]:
        """Do `task` and yield what happens, then the `TaskResult`. See `Team`."""
        messages = task_messages(task)
        for message in messages:
            self._check_type(message, ValueError)
        run = self._run(messages, cancellation_token or CancellationToken(), output_task_messages)
        traced = trace_agent(
            "invoke_workflow", self, messages, run, TaskResult, lambda result: result.messages
        )
        async with aclosing(traced) as items:
            async for item in items:
                yield item

    async def _run(
        self,
        messages: Sequence[BaseChatMessage],
        token: CancellationToken,
        output_task_messages: bool,
    ) -> AsyncGenerator[AgentMessage | TaskResult, None]:
        if self._is_running:
            raise ValueError(
                "The team is already running, it cannot run again until it is stopped. "
                "After leaving a loop over run_stream early, close the stream: "
                "async with contextlib.aclosing(team.run_stream(...)) as stream."
            )
        self._is_running = True
        transcript: list[AgentMessage] = []
        try:
            stop_reason = self._check_start(messages)
            if stop_reason is None and messages:
                if output_task_messages:
                    for message in messages:
                        transcript.append(message)
                        yield message
                stop_reason = await self._receive(messages)
            while stop_reason is None:
                async with aclosing(until_cancelled(self._take_turn(token), token)) as turn:
                    async for item in turn:
                        if isinstance(item, _EndOfTurn):
                            stop_reason = item.stop_reason
                            break
                        if not is_transient(item):
                            transcript.append(item)
                        yield item
            yield TaskResult(messages=transcript, stop_reason=stop_reason)
        finally:
            self._is_running = False

    async def _receive(self, messages: Sequence[BaseChatMessage]) -> str | None:
        """Add the messages of a task, and return why the team stops immediately, or None."""
        new = [message for message in messages if message.id not in self._unanswered]
        if not new:
            return None
        self._unanswered |= {message.id for message in new}
        self._deliver(new)
        await self._add_to_thread(new)
        return await self._find_stop_reason()

    async def _take_turn(
        self, token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | _EndOfTurn, None]:
        """Let the next speaker speak."""
        await asyncio.sleep(0)  # so that others run, and can cancel agents that never wait
        speaker = ""
        async with aclosing(self._select_speaker(token)) as selection:
            async for item in selection:
                if isinstance(item, str):
                    speaker = item
                else:
                    yield item
        if self._emit_team_events:
            yield SelectSpeakerEvent(content=[speaker], source=self.MANAGER_NAME)
        has_ended = False
        async with _closing(self._start_speaker(speaker, token), speaker) as stream:
            async for item in stream:
                # What was said is recorded before anybody can stop reading at it.
                match item:
                    case Response(chat_message=answer):
                        has_ended = True
                        self._check_type(answer)
                        self._unread[speaker].clear()
                        self._deliver([answer], speaker)
                        await self._add_to_thread([*(item.inner_messages or ()), answer])
                        self._end_turn(speaker)
                        yield answer
                    case TaskResult():
                        has_ended = True
                        self._unread[speaker].clear()
                        self._end_turn(speaker)
                    case _:
                        self._check_type(item)
                        if isinstance(self._participants[speaker], Team):
                            self._deliver([item], speaker)
                            await self._add_to_thread([item])
                        yield item
        if not has_ended:
            raise AgentError(f"The participant {speaker!r} did not end its turn with a Response.")
        yield _EndOfTurn(await self._find_stop_reason())

    def _start_speaker(
        self, speaker: str, token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response | TaskResult, None]:
        participant = self._participants.get(speaker)
        if participant is None:
            raise AgentError(f"Speaker {speaker} not found in participant names.")
        news = list(self._unread[speaker])
        if isinstance(participant, Team):
            return participant.run_stream(
                task=news or None, cancellation_token=token, output_task_messages=False
            )
        return trace_answer(participant, news, participant.on_messages_stream(news, token))

    def _deliver(self, messages: Sequence[AgentMessage], speaker: str | None = None) -> None:
        """Keep the chat messages for every participant but the speaker, until its turn."""
        chat_messages = [each for each in messages if isinstance(each, BaseChatMessage)]
        for name, unread in self._unread.items():
            if name != speaker:
                unread += chat_messages

    async def _add_to_thread(self, messages: Sequence[AgentMessage]) -> None:
        """Add `messages` to the conversation."""
        kept = [message for message in messages if not is_transient(message)]
        self._thread += kept
        self._unchecked += kept

    async def _find_stop_reason(self) -> str | None:
        """Return why the team stops now, and start counting again if it does."""
        messages, self._unchecked = self._unchecked, []
        reason: str | None = None
        if self._termination_condition is not None:
            stop_message = await self._termination_condition(messages)
            reason = None if stop_message is None else stop_message.content
        if reason is None and self._max_turns is not None and self._current_turn >= self._max_turns:
            reason = f"Maximum number of turns {self._max_turns} reached."
        if reason is not None:
            await self._start_again()
        return reason

    async def _start_again(self) -> None:
        self._current_turn = 0
        self._unanswered.clear()
        if self._termination_condition is not None:
            await self._termination_condition.reset()

    def _check_type(self, message: AgentMessage, error: type[Exception] = AgentError) -> None:
        if not self._message_factory.is_registered(type(message)):
            raise error(
                f"Message type {type(message).__name__} is not registered. "
                "Add it to custom_message_types when you create the team."
            )

    # what kinds of teams differ in

    def _check_start(self, messages: Sequence[BaseChatMessage]) -> str | None:
        """Return why the team cannot start with the task `messages`, or None."""
        if self._termination_condition is not None and self._termination_condition.terminated:
            return "The group chat has already terminated."
        return None

    @abstractmethod
    def _select_speaker(self, token: CancellationToken) -> AsyncGenerator[AgentMessage | str, None]:
        """Yield events, and the name of the next speaker last."""

    def _end_turn(self, speaker: str) -> None:
        """Note that `speaker` spoke. A turn that fails does not end: it is taken again."""
        self._current_turn += 1

    @abstractmethod
    def _save_turn_order(self) -> ManagerState:
        """Return what `_select_speaker` keeps; the rest is filled in."""

    @abstractmethod
    async def _load_turn_order(self, state: Mapping[str, Any]) -> None:
        """Take over what `_save_turn_order` returned; the conversation is loaded already."""

    @abstractmethod
    async def _reset_turn_order(self) -> None:
        """Start with the first speaker."""

    # state

    async def reset(self) -> None:
        """Forget the conversation. See `Team`."""
        self._check_not_running("reset")
        self._is_running = True
        try:
            for participant in self._participants.values():
                if isinstance(participant, Team):
                    await participant.reset()
                else:
                    await participant.on_reset(CancellationToken())
            for unread in self._unread.values():
                unread.clear()
            self._thread.clear()
            self._unchecked.clear()
            await self._start_again()
            await self._reset_turn_order()
        finally:
            self._is_running = False

    async def pause(self) -> None:
        """Call `on_pause` of every participant. See `Team`."""
        for participant in self._participants.values():
            if isinstance(participant, Team):
                await participant.pause()
            else:
                await participant.on_pause(CancellationToken())

    async def resume(self) -> None:
        """Call `on_resume` of every participant."""
        for participant in self._participants.values():
            if isinstance(participant, Team):
                await participant.resume()
            else:
                await participant.on_resume(CancellationToken())

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation and the states of the participants. See `Team`."""
        states: dict[str, dict[str, Any]] = {}
        for name, participant in self._participants.items():
            states[name] = ParticipantState(
                agent_state=dict(await participant.save_state()),
                message_buffer=[dict(message.dump()) for message in self._unread[name]],
            ).model_dump()
        manager = self._save_turn_order()
        manager.message_thread = [dict(message.dump()) for message in self._thread]
        manager.current_turn = self._current_turn
        states[self.MANAGER_NAME] = manager.model_dump()
        return TeamState(agent_states=states).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned. See `Team`."""
        self._check_not_running("loaded")
        states = read_state(TeamState, state, self._name).agent_states
        for name in [*self._participants, self.MANAGER_NAME]:
            if name not in states:
                raise ValueError(f"Agent state for {name} not found in the saved state.")
        saved = {
            name: read_state(ParticipantState, states[name], name) for name in self._participants
        }
        manager = read_state(ManagerState, states[self.MANAGER_NAME], self.MANAGER_NAME)
        thread = [self._message_factory.create(each) for each in manager.message_thread]
        unread = {name: self._load_unread(each) for name, each in saved.items()}
        self._is_running = True
        try:
            for name, participant in self._participants.items():
                await participant.load_state(saved[name].agent_state)
            self._thread, self._unread = thread, unread
            self._unchecked.clear()
            self._unanswered.clear()
            self._current_turn = manager.current_turn
            await self._load_turn_order(states[self.MANAGER_NAME])
        finally:
            self._is_running = False

    def _load_unread(self, state: ParticipantState) -> list[BaseChatMessage]:
        messages = [self._message_factory.create(each) for each in state.message_buffer]
        unread = [message for message in messages if isinstance(message, BaseChatMessage)]
        if len(unread) < len(messages):
            raise ValueError("The saved state has an event among the messages for a participant.")
        return unread

    def _check_not_running(self, action: str) -> None:
        if self._is_running:
            raise AgentError(
                "The group chat is currently running. "
                f"It must be stopped before it can be {action}."
            )

    # the saved configuration

    def _to_config(self) -> dict[str, object]:
        if self._custom_message_types:
            raise ComponentError(
                f"The team {self._name!r} has custom_message_types, which cannot be saved."
            )
        condition = self._termination_condition
        return {
            "name": self._name,
            "description": self._description,
            "participants": [
                each.dump_component().to_dict() for each in self._participants.values()
            ],
            "termination_condition": condition and condition.dump_component().to_dict(),
            "max_turns": self._max_turns,
            "emit_team_events": self._emit_team_events,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        arguments: dict[str, Any] = dict(config)
        if not isinstance(arguments.get("participants"), list):
            raise ComponentError(f"The configuration of a {cls.__name__} must list participants.")
        arguments["participants"] = [_load_participant(each) for each in arguments["participants"]]
        if arguments.get("termination_condition") is not None:
            arguments["termination_condition"] = TerminationCondition.load_component(
                arguments["termination_condition"]
            )
        return cls(**arguments)


@asynccontextmanager
async def _closing(
    stream: AsyncGenerator[ItemT, None], participant: str
) -> AsyncGenerator[AsyncGenerator[ItemT, None], None]:
    """Close `stream` at the end. Note on an exception that it comes from `participant`."""
    try:
        async with aclosing(stream):
            yield stream
    except Exception as error:  # raised again
        error.add_note(f"It comes from the participant {participant!r}.")
        raise


def _load_participant(saved: Mapping[str, Any]) -> Participant:
    participant = load_component(saved)
    if not isinstance(participant, ChatAgent | Team):
        raise ComponentError(f"A {type(participant).__name__} cannot be a participant of a team.")
    return participant


def _structured_types(participants: Sequence[Participant]) -> list[type[AgentMessage]]:
    """Return the types of structured messages that agents say they produce."""
    return [
        cast(type[AgentMessage], message_type)
        for participant in participants
        if isinstance(participant, ChatAgent)
        for message_type in participant.produced_message_types
        if issubclass(message_type, StructuredMessage)
    ]
