"""Ask a model who speaks next. The prompts and the reading of its answers are AutoGen's."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from ..agents.messages import AgentMessage, ModelClientStreamingChunkEvent, SelectorEvent
from ..cancellation import CancellationToken
from ..models.client import ChatCompletionClient
from ..models.messages import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from ..models.model_family import ModelFamily

SELECTOR_PROMPT = """You are in a role play game. The following roles are available:
{roles}.
Read the following conversation. Then select the next role from {participants} to play. Only return the role.

{history}

Read the above conversation. Then select the next role from {participants} to play. Only return the role.
"""  # noqa: E501 - the prompt has long lines

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SpeakerChoice:
    """A choice to make.

    roles        the description of each participant, by name
    candidates   the names that the model may choose from
    excluded     the name that must not be chosen, although it is a participant
    prompt       what the model is asked
    history      the conversation
    """

    roles: Mapping[str, str]
    candidates: Sequence[str]
    excluded: str | None
    prompt: str
    history: Sequence[LLMMessage]


async def choose_speaker(
    choice: SpeakerChoice,
    model_client: ChatCompletionClient,
    *,
    attempts: int,
    stream: bool,
    source: str,
    token: CancellationToken,
) -> AsyncGenerator[AgentMessage | str, None]:
    """Yield events from `source` if `stream`, and the chosen name last.

    Yield no name if the model did not choose within so many `attempts`.
    """
    question = format_question(choice)
    # Many models answer a user only.
    is_openai = ModelFamily.is_openai(model_client.model_info["family"])
    messages: list[LLMMessage] = [
        SystemMessage(content=question)
        if is_openai
        else UserMessage(content=question, source="user")
    ]
    for _ in range(attempts):
        result: CreateResult | None = None
        if stream:
            chunks = model_client.create_stream(messages, cancellation_token=token)
            async with aclosing(chunks):
                async for chunk in chunks:
                    if isinstance(chunk, str):
                        yield ModelClientStreamingChunkEvent(content=chunk, source=source)
                    else:
                        result = chunk
        else:
            result = await model_client.create(messages, cancellation_token=token)
        answer = result.content if result and isinstance(result.content, str) else ""
        if stream:
            yield SelectorEvent(content=answer, source=source)
        name, feedback = read_answer(answer, choice)
        if name is not None:
            yield name
            return
        _log.debug("The model chose no speaker: %s", feedback)
        messages.append(AssistantMessage(content=answer, source="selector"))
        messages.append(UserMessage(content=feedback, source="user"))


def check_prompt(prompt: str) -> None:
    """Raise `ValueError` if `prompt` has other fields than those of a selector prompt."""
    try:
        prompt.format(roles="", participants="", history="")
    except (LookupError, ValueError, AttributeError) as error:
        raise ValueError(
            f"selector_prompt cannot be filled in: {error}. Use the fields {{roles}}, "
            "{participants} and {history} only, and write other braces twice."
        ) from error


def format_question(choice: SpeakerChoice) -> str:
    """Return the prompt with the roles, the candidates and the conversation."""
    roles = [
        re.sub(r"\s+", " ", f"{name}: {description}").strip()
        for name, description in choice.roles.items()
    ]
    spoken = [
        f"{message.source}: {_text_of(message)}".rstrip() + "\n\n"
        for message in choice.history
        if isinstance(message, UserMessage | AssistantMessage)
    ]
    return choice.prompt.format(
        roles="\n".join(roles), participants=str(list(choice.candidates)), history="\n".join(spoken)
    )


def read_answer(answer: str, choice: SpeakerChoice) -> tuple[str | None, str]:
    """Return the name that `answer` mentions, or None and what to tell the model."""
    # All names are looked for: the model may name one that is not a candidate.
    names = [name for name in choice.roles if _mentions(answer, name)]
    candidates = str(list(choice.candidates))
    if not names:
        return None, f"No valid name was mentioned. Please select from: {candidates}."
    if len(names) > 1:
        return None, (
            f"Expected exactly one name to be mentioned. Please select only one from: {candidates}."
        )
    if names[0] == choice.excluded:
        return None, (
            f"Repeated speaker is not allowed, please select a different name from: {candidates}."
        )
    if names[0] not in choice.candidates:
        return None, f"{names[0]} cannot be selected. Please select from: {candidates}."
    return names[0], ""


def _mentions(text: str, name: str) -> bool:
    """Return True if `name` is in `text` as a word. "_" may be a blank, or be escaped."""
    spellings = (name, name.replace("_", " "), name.replace("_", r"\_"))
    pattern = "|".join(re.escape(spelling) for spelling in spellings)
    return re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text) is not None


def _text_of(message: UserMessage | AssistantMessage) -> str:
    match message.content:
        case str() as text:
            return text
        case parts:
            return "\n".join(part if isinstance(part, str) else str(part) for part in parts)
