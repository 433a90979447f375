"""SelectorGroupChat: a model, or a function, chooses who speaks next."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self, cast

from ..agents.context import add_to_context, context_or_default
from ..agents.messages import AgentMessage, BaseChatMessage
from ..agents.model_calls import check_model_client
from ..cancellation import CancellationToken
from ..errors import ComponentError
from ..models.client import ChatCompletionClient
from ..models.contexts import ChatCompletionContext
from .group_chat import BaseGroupChat, Participant
from .speaker_choice import SELECTOR_PROMPT, SpeakerChoice, check_prompt, choose_speaker
from .state import ManagerState, SelectorManagerState, read_state
from .termination import TerminationCondition

_log = logging.getLogger(__name__)

SelectorFuncType = Callable[[Sequence[AgentMessage]], str | None | Awaitable[str | None]]
CandidateFuncType = Callable[[Sequence[AgentMessage]], list[str] | Awaitable[list[str]]]


class SelectorGroupChat(BaseGroupChat):
    """A team in which a model reads the conversation and chooses the next speaker.

    model_client             the model that chooses
    selector_prompt          what it is asked, with {roles}, {participants} and {history}
    allow_repeated_speaker   the last speaker may be chosen again
    max_selector_attempts    wrong answers of the model before the last speaker speaks again, or the
                             first candidate before the first turn
    selector_func            chooses instead of the model, from the conversation; None as its answer
                             leaves the choice to the model. May be async
    candidate_func           returns the names that the model may choose from. May be async
    model_client_streaming   stream the answer of the model; shown only with `emit_team_events`
    model_context            what of the conversation the model sees; None means everything

    For the other parameters see `BaseGroupChat`. Raise `ValueError` for less than two participants,
    and for a wrong argument.
    """

    DEFAULT_NAME: ClassVar[str] = "SelectorGroupChat"
    MANAGER_NAME: ClassVar[str] = "SelectorGroupChatManager"

    def __init__(
        self,
        participants: Sequence[Participant],
        model_client: ChatCompletionClient,
        *,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        runtime: object = None,
        selector_prompt: str = SELECTOR_PROMPT,
        allow_repeated_speaker: bool = False,
        max_selector_attempts: int = 3,
        selector_func: SelectorFuncType | None = None,
        candidate_func: CandidateFuncType | None = None,
        custom_message_types: Sequence[type[AgentMessage]] | None = None,
        emit_team_events: bool = False,
        model_client_streaming: bool = False,
        model_context: ChatCompletionContext | None = None,
    ) -> None:
        super().__init__(
            participants,
            name=name,
            description=description,
            termination_condition=termination_condition,
            max_turns=max_turns,
            runtime=runtime,
            custom_message_types=custom_message_types,
            emit_team_events=emit_team_events,
        )
        if len(participants) < 2:
            raise ValueError("At least two participants are required for SelectorGroupChat.")
        check_model_client(model_client)
        check_prompt(selector_prompt)
        if max_selector_attempts < 1:
            raise ValueError(
                f"max_selector_attempts must be at least 1, not {max_selector_attempts}. "
                "Pass a selector_func to choose without a model."
            )
        self._model_client = model_client
        self._selector_prompt = selector_prompt
        self._allow_repeated_speaker = allow_repeated_speaker
        self._max_selector_attempts = max_selector_attempts
        self._selector_func = selector_func
        self._candidate_func = candidate_func
        self._model_client_streaming = model_client_streaming
        self._model_context = context_or_default(model_context)
        self._previous_speaker: str | None = None

    async def _select_speaker(
        self, token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | str, None]:
        speaker = await self._ask_selector_func()
        if speaker is not None:
            yield speaker
            return
        candidates = await self._find_candidates()
        if len(candidates) == 1:
            yield candidates[0]
            return
        choice = SpeakerChoice(
            roles={name: each.description for name, each in self._participants.items()},
            candidates=candidates,
            excluded=None if self._allow_repeated_speaker else self._previous_speaker,
            prompt=self._selector_prompt,
            history=await self._model_context.get_messages(),
        )
        choosing = choose_speaker(
            choice,
            self._model_client,
            attempts=self._max_selector_attempts,
            stream=self._model_client_streaming,
            source=self.MANAGER_NAME,
            token=token,
        )
        name: str | None = None
        async with aclosing(choosing):
            async for item in choosing:
                if isinstance(item, str):
                    name = item
                elif self._emit_team_events:
                    yield item
        if name is None:
            name = self._speaker_without_choice(candidates)
            _log.warning(
                "The model chose no speaker in %d attempts: %s speaks.",
                self._max_selector_attempts,
                name,
            )
        yield name

    def _speaker_without_choice(self, candidates: Sequence[str]) -> str:
        """Return who speaks if the model does not choose: the last speaker, as in AutoGen.

        Only `candidate_func` excludes it: that is a rule, and no advice.
        """
        previous = self._previous_speaker
        if previous is None or (self._candidate_func is not None and previous not in candidates):
            return candidates[0]
        return previous

    async def _ask_selector_func(self) -> str | None:
        if self._selector_func is None:
            return None
        answer = self._selector_func(list(self._thread))
        speaker = await answer if inspect.isawaitable(answer) else answer
        if speaker is not None and speaker not in self._participants:
            raise ValueError(
                f"Selector function returned an invalid speaker name: {speaker}. "
                f"Expected one of: {list(self._participants)}."
            )
        return speaker

    async def _find_candidates(self) -> list[str]:
        names = list(self._participants)
        if self._candidate_func is None:
            if self._allow_repeated_speaker:
                return names
            return [name for name in names if name != self._previous_speaker]
        answer = self._candidate_func(list(self._thread))
        candidates = await answer if inspect.isawaitable(answer) else answer
        if not candidates:
            raise ValueError(
                "Candidate function must return a non-empty list of participant names."
            )
        if not set(candidates) <= set(names):
            raise ValueError(
                f"Candidate function returned invalid participant names: {candidates}. "
                f"Expected one of: {names}."
            )
        return candidates

    async def _add_to_thread(self, messages: Sequence[AgentMessage]) -> None:
        await super()._add_to_thread(messages)
        await self._add_to_model_context(messages)

    async def _add_to_model_context(self, messages: Sequence[AgentMessage]) -> None:
        chat_messages = [each for each in messages if isinstance(each, BaseChatMessage)]
        await add_to_context(self._model_context, chat_messages)

    def _end_turn(self, speaker: str) -> None:
        super()._end_turn(speaker)
        self._previous_speaker = speaker

    def _save_turn_order(self) -> ManagerState:
        return SelectorManagerState(previous_speaker=self._previous_speaker)

    async def _load_turn_order(self, state: Mapping[str, Any]) -> None:
        self._previous_speaker = read_state(
            SelectorManagerState, state, self.MANAGER_NAME
        ).previous_speaker
        await self._model_context.clear()
        await self._add_to_model_context(self._thread)

    async def _reset_turn_order(self) -> None:
        self._previous_speaker = None
        await self._model_context.clear()

    def _to_config(self) -> dict[str, object]:
        if self._selector_func is not None or self._candidate_func is not None:
            raise ComponentError(
                f"The team {self._name!r} cannot be saved: selector_func and candidate_func are "
                "functions."
            )
        return {
            **super()._to_config(),
            "model_client": self._model_client.dump_component().to_dict(),
            "selector_prompt": self._selector_prompt,
            "allow_repeated_speaker": self._allow_repeated_speaker,
            "max_selector_attempts": self._max_selector_attempts,
            "model_client_streaming": self._model_client_streaming,
            "model_context": self._model_context.dump_component().to_dict(),
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        arguments = cast(dict[str, Any], dict(config))
        arguments["model_client"] = ChatCompletionClient.load_component(arguments["model_client"])
        if arguments.get("model_context") is not None:
            arguments["model_context"] = ChatCompletionContext.load_component(
                arguments["model_context"]
            )
        return super()._from_config(arguments)
