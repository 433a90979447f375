"""ModelSelection: a chat model names the next speaker."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from ..agent import Agent, ChatMessage, Reply
from ..conversable_agent import ConversableAgent
from ..conversations.chat_result import ChatResult
from ..errors import AgentNameConflict
from ..message_text import content_str
from ..printing import print_notice
from ..steps import Step, Steps, asynchronous, synchronous
from .group_chat_settings import GroupChatSettings

logger = logging.getLogger(__name__)

_CHECKING_AGENT = "checking_agent"
_SELECTED = "[AGENT SELECTED]"
_FAILED = "[AGENT SELECTION FAILED]"

Validator = Callable[..., Reply]


class ModelSelection(GroupChatSettings):
    """The part of a group chat that asks a model for the next speaker.

    Two agents talk: `speaker_selection_agent` has the model, and `checking_agent` looks for one
    name in its answer and asks again if there is none or several. The last message of their chat
    records the outcome.
    """

    def select_speaker_msg(self, agents: list[Agent] | None = None) -> str:
        """Return the instructions for the model that chooses among `agents`."""
        return self.select_speaker_message_template.format(
            roles=self._participant_roles(agents), agentlist=self._agent_list(agents)
        )

    def select_speaker_prompt(self, agents: list[Agent] | None = None) -> str | None:
        """Return the question that follows the conversation, None without a template."""
        template = self.select_speaker_prompt_template
        return template and template.format(agentlist=self._agent_list(agents))

    def _agent_list(self, agents: list[Agent] | None) -> str:
        return str([agent.name for agent in (self.agents if agents is None else agents)])

    @synchronous
    def _auto_select_speaker(
        self,
        last_speaker: Agent,
        selector: ConversableAgent,
        messages: list[ChatMessage] | None,
        agents: list[Agent] | None,
    ) -> Steps[Agent]:
        """Return the agent of `agents` that the model of `selector` names.

        Return the next agent of the list if the model names none after all attempts.
        """
        history = list(self.messages if messages is None else messages)
        question = self._first_question(history, agents)
        attempts = 1 + self.max_retries_for_selecting_speaker
        checker, chooser = self._create_internal_agents(
            agents, attempts, history, self._counting_validator(attempts, agents), selector
        )
        result: ChatResult = yield from Step(checker.initiate_chat, checker.a_initiate_chat)(
            chooser,
            message=question,
            max_turns=attempts + 1,
            clear_history=False,
            silent=not self.select_speaker_auto_verbose,
        )
        return self._process_speaker_selection_result(result, last_speaker, agents)

    a_auto_select_speaker = asynchronous(_auto_select_speaker)

    def _counting_validator(self, attempts: int, agents: list[Agent] | None) -> Validator:
        """Return the reply function of the checking agent, which counts the attempts."""
        numbers = itertools.count(1)

        def validate(
            recipient: Agent, messages: list[ChatMessage], sender: Agent, config: Any
        ) -> Reply:
            attempt = next(numbers)
            return self._validate_speaker_name(
                recipient, messages, sender, config, attempts - attempt, attempt, agents
            )

        return validate

    def _first_question(
        self, history: list[ChatMessage], agents: list[Agent] | None
    ) -> ChatMessage:
        """Return the question; without a template it is the last message, taken off `history`."""
        if self.select_speaker_prompt_template or not history:
            return self._question(self.select_speaker_prompt(agents) or "")
        return history.pop()

    def _question(self, text: str) -> ChatMessage:
        role = self.role_for_select_speaker_messages
        return {"content": text, "name": _CHECKING_AGENT, "override_role": role}

    def _create_internal_agents(
        self,
        agents: list[Agent] | None,
        max_attempts: int,
        messages: list[ChatMessage],
        validate_speaker_name: Validator,
        selector: ConversableAgent | None = None,
    ) -> tuple[ConversableAgent, ConversableAgent]:
        checker = ConversableAgent(
            _CHECKING_AGENT, max_consecutive_auto_reply=max_attempts, human_input_mode="NEVER"
        )
        chooser = ConversableAgent(
            "speaker_selection_agent",
            system_message=self.select_speaker_msg(agents),
            chat_messages={cast(Agent, checker): messages},
            llm_config=self.select_speaker_auto_llm_config or False,
            max_consecutive_auto_reply=max_attempts + 1,
            human_input_mode="NEVER",
        )
        self._set_up_chooser_model(chooser, selector)
        checker.register_reply(
            [chooser, None], validate_speaker_name, remove_other_reply_funcs=True
        )
        if self.select_speaker_transform_messages is not None:
            self.select_speaker_transform_messages.add_to_agent(chooser)
        return checker, chooser

    def _set_up_chooser_model(
        self, chooser: ConversableAgent, selector: ConversableAgent | None
    ) -> None:
        """Use the model of the manager, unless the group chat has one for the selection."""
        config = self.select_speaker_auto_llm_config
        if config is None and selector is not None:
            chooser.llm_config, chooser.client = selector.llm_config, selector.client
        elif config:
            given = self.select_speaker_auto_model_client_cls
            classes = cast(list[Any], given if isinstance(given, list) else [given])
            named = {cls.__name__: cls for cls in classes if cls is not None}
            for entry in config.get("config_list", [config]):
                if entry.get("model_client_cls") in named:
                    chooser.register_model_client(named[entry["model_client_cls"]])
        if chooser.client is None:
            logger.warning(
                "The next speaker is the next agent in the list, because no model can choose. Set "
                "llm_config of the GroupChatManager, or another speaker_selection_method."
            )

    def _validate_speaker_name(
        self,
        recipient: Agent | None,
        messages: list[ChatMessage],
        sender: Agent | None,
        config: Any,
        attempts_left: int,
        attempt: int,
        agents: list[Agent] | None,
    ) -> Reply:
        """Return the next question to the model, None if there is no need for one.

        Then the outcome is appended to `messages`.
        """
        names = list(self._mentioned_agents(messages[-1]["content"], agents))
        of_total = f"{attempt} of {attempt + attempts_left}"
        if len(names) == 1:
            self._report(f"attempt {of_total} successfully selected: {names[0]}", success=True)
            outcome = f"{_SELECTED}{names[0]}"
        elif attempts_left > 0:
            return True, self._question_again(names, of_total, attempt, agents)
        else:
            self._report_failure(names, of_total, attempt)
            reason = "returned multiple names" if names else "did not include any agent names"
            outcome = f"{_FAILED}Select speaker attempt #{of_total} failed as it {reason}."
        messages.append({"role": "user", "content": outcome})
        return True, None

    def _question_again(
        self, names: list[str], of_total: str, attempt: int, agents: list[Agent] | None
    ) -> ChatMessage:
        self._report_failure(names, of_total, attempt)
        several, none = (
            self.select_speaker_auto_multiple_template,
            self.select_speaker_auto_none_template,
        )
        template = several if names else none
        return self._question(template.format(agentlist=self._agent_list(agents)))

    def _report_failure(self, names: list[str], of_total: str, attempt: int) -> None:
        if names:
            self._report(f"attempt {of_total} failed as it included multiple agent names.")
        else:
            self._report(f"attempt #{attempt} failed as it did not include any agent names.")

    def _report(self, text: str, *, success: bool = False) -> None:
        if self.select_speaker_auto_verbose:
            print_notice(f">>>>>>>> Select speaker {text}", "green" if success else "red")

    def _process_speaker_selection_result(
        self, result: ChatResult, last_speaker: Agent, agents: list[Agent] | None
    ) -> Agent:
        history: Sequence[ChatMessage] = result.chat_history or ()
        outcome = str(history[-1]["content"]) if history else ""
        if not outcome.startswith(_SELECTED):
            return self.next_agent(last_speaker, agents)
        name = outcome.removeprefix(_SELECTED)
        candidates = [agent for agent in self.agents if agent.name == name]
        if len(candidates) > 1:
            raise AgentNameConflict(
                f"The model chose '{name}', but {len(candidates)} agents of the group chat have "
                "this name. Rename all but one."
            )
        return candidates[0] if candidates else self.next_agent(last_speaker, agents)

    def _mentioned_agents(
        self, message_content: str | list[Any] | None, agents: list[Agent] | None
    ) -> dict[str, int]:
        """Return how often the text has the name of each agent, without those it does not have.

        A name with `_` may also be written with spaces, or with a backslash before each `_`.
        """
        text = f" {content_str(message_content)} "
        mentions: dict[str, int] = {}
        for agent in self.agents if agents is None else agents:
            forms = {agent.name, agent.name.replace("_", " "), agent.name.replace("_", r"\_")}
            pattern = "|".join(map(re.escape, sorted(forms)))
            count = len(re.findall(rf"(?<=\W)(?:{pattern})(?=\W)", text))
            if count:
                mentions[agent.name] = count
        return mentions
