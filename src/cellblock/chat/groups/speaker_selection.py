"""SpeakerSelection: who speaks next, by turn, by chance, by a person, a function or a model."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, cast

from ...agents.user_proxy_agent import call_input_func
from ..agent import Agent, ChatMessage
from ..errors import NoEligibleSpeaker
from ..io import IOStream
from ..steps import Step, Steps, asynchronous, synchronous
from .model_selection import ModelSelection

if TYPE_CHECKING:
    from ..conversable_agent import ConversableAgent

logger = logging.getLogger(__name__)

_MANUAL_TRIES = 2


class SpeakerSelection(ModelSelection):
    """The part of a group chat that selects the next speaker. Override `select_speaker`."""

    @synchronous
    def select_speaker(self, last_speaker: Agent, selector: ConversableAgent) -> Steps[Agent]:
        """Return who speaks after `last_speaker`. `selector` is the manager.

        Raise `NoEligibleSpeaker` if the chat is over because no agent may speak.
        """
        method, speaker = self._selection_method(last_speaker)
        if speaker is not None:
            return speaker
        self._check_population(method)
        agents = self._eligible_agents(last_speaker)
        if len(agents) == 1:
            return agents[0]
        if method == "round_robin":
            return self.next_agent(last_speaker, agents)
        if method == "random":
            return self.random_select_speaker(agents)
        if method == "manual":
            ask = Step(self.manual_select_speaker, self._a_manual_select_speaker)
            chosen: Agent | None = yield from ask(agents)
            if chosen is not None:
                return chosen
        select = Step(self._auto_select_speaker, self.a_auto_select_speaker)
        return (yield from select(last_speaker, selector, self._messages_without_calls(), agents))

    a_select_speaker = asynchronous(select_speaker)

    def _selection_method(self, last_speaker: Agent) -> tuple[str, Agent | None]:
        """Return the method's name, and the speaker if a function of the user names one."""
        given = self.speaker_selection_method
        method = cast(object, given(last_speaker, self) if callable(given) else given)
        if callable(given):
            if method is None:
                raise NoEligibleSpeaker(
                    "Custom speaker selection function returned None. Terminating conversation."
                )
            if isinstance(method, Agent):
                return "", self._member(method)
            if not isinstance(method, str):
                raise ValueError(
                    "Custom speaker selection function returned an object of type "
                    f"{type(method)} instead of Agent or str."
                )
        lowered = method.lower() if isinstance(method, str) else ""
        if lowered not in self._VALID_SPEAKER_SELECTION_METHODS:
            raise ValueError(
                f"GroupChat speaker_selection_method is set to '{method}'. It should be one of "
                f"{self._VALID_SPEAKER_SELECTION_METHODS} (case insensitive). "
            )
        return lowered, None

    def _member(self, agent: Agent) -> Agent:
        if agent not in self.agents:
            raise ValueError(
                f"Custom speaker selection function returned an agent {agent.name} not in the "
                "group chat."
            )
        return agent

    def _check_population(self, method: str) -> None:
        count = len(self.agents)
        if count < 2:
            raise ValueError(
                f"GroupChat is underpopulated with {count} agents. "
                "Please add more agents to the GroupChat or use direct communication instead."
            )
        if count == 2 and method != "round_robin" and self.allow_repeat_speaker:
            logger.warning(
                "GroupChat is underpopulated with %s agents. Consider setting "
                "speaker_selection_method to 'round_robin' or allow_repeat_speaker to False, or "
                "use direct communication, unless repeated speaker is desired.",
                count,
            )

    def _eligible_agents(self, last_speaker: Agent) -> list[Agent]:
        agents = self._agents_for_calls()
        can_answer_call = agents is not None
        agents = self.agents if agents is None else agents
        if len(agents) == 1 or last_speaker not in self.agents:
            return agents
        if last_speaker not in self.allowed_speaker_transitions_dict:
            raise NoEligibleSpeaker(
                f"Last speaker {last_speaker.name} is not in the allowed_speaker_transitions_dict."
            )
        allowed = self.allowed_speaker_transitions_dict[last_speaker]
        eligible = [agent for agent in agents if agent in allowed]
        if not eligible and not can_answer_call:
            raise NoEligibleSpeaker(f"No agent may speak after {last_speaker.name}.")
        return eligible or agents  # a call needs its result, whatever the transitions are

    def _agents_for_calls(self) -> list[Agent] | None:
        """Return the agents that can execute the calls of the last message, None without calls."""
        functions = _called_functions(self.messages[-1]) if self.messages else []
        if not functions or not self.func_call_filter:
            return None
        members = cast(list[Any], self.agents)
        able = [agent for agent in members if _can_execute(agent, functions)]
        able = able or [agent for agent in members if getattr(agent, "function_map", None)]
        if not able:
            raise ValueError(
                f"No agent can execute the function {', '.join(functions)}. "
                "Please check the function_map of the agents."
            )
        return able

    def _messages_without_calls(self) -> list[ChatMessage]:
        """Return the messages for the model, the last without calls that have no result yet."""
        messages = list(self.messages)
        if messages:
            calls = ("function_call", "tool_calls")
            messages[-1] = {key: part for key, part in messages[-1].items() if key not in calls}
        return messages

    def random_select_speaker(self, agents: list[Agent] | None = None) -> Agent:
        """Return one of `agents` by chance."""
        return random.choice(self.agents if agents is None else agents)

    def manual_select_speaker(self, agents: list[Agent] | None = None) -> Agent | None:
        """Ask a person which of `agents` speaks next. Return None if the person names none."""
        agents = self.agents if agents is None else agents
        stream = IOStream.get_default()
        stream.print("Please select the next speaker from the following list:")
        for number, agent in enumerate(agents, 1):
            stream.print(f"{number}: {agent.name}")
        for _ in range(_MANUAL_TRIES):
            answer = stream.input(
                "Enter the number of the next speaker (enter nothing or `q` to use auto "
                "selection): "
            ).strip()
            if answer in ("", "q"):
                return None
            if answer.isdecimal() and 0 < int(answer) <= len(agents):
                return agents[int(answer) - 1]
            stream.print(f"Invalid input. Please enter a number between 1 and {len(agents)}.")
        stream.print(
            f"You have tried {_MANUAL_TRIES + 1} times. "
            "The next speaker will be selected automatically."
        )
        return None

    async def _a_manual_select_speaker(self, agents: list[Agent]) -> Agent | None:
        def ask(_prompt: str) -> Any:
            return self.manual_select_speaker(agents)

        return cast("Agent | None", await call_input_func(ask, "", None))


def _called_functions(message: ChatMessage) -> list[str]:
    if message.get("function_call"):
        return [message["function_call"]["name"]]
    return [
        call["function"]["name"]
        for call in message.get("tool_calls") or ()
        if call.get("type", "function") == "function"
    ]


def _can_execute(agent: Any, functions: list[str]) -> bool:
    can_execute = getattr(agent, "can_execute_function", None)
    return can_execute is not None and can_execute(functions)
