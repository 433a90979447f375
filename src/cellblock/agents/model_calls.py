"""Ask a model on behalf of an agent."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..cancellation import CancellationToken
from ..errors import ModelOutputError
from ..models.client import ChatCompletionClient, JsonOutput, ToolChoice
from ..models.messages import CreateResult, LLMMessage, UserMessage
from ..models.tool_schema import ToolLike
from .cancellable import cancelled_by, until_cancelled
from .messages import BaseChatMessage, ModelClientStreamingChunkEvent

_THOUGHTS = re.compile(r"<think>.*?(?:</think>\s*|\Z)", re.DOTALL)
# "content_filter": the service ended the answer.
_CUT_OFF = ("length", "content_filter")


def without_thoughts(text: str) -> str:
    """Return `text` without the thoughts of the model between `<think>` tags."""
    return _THOUGHTS.sub("", text)


def check_model_client(client: object) -> None:
    """Raise `ValueError` if `client` is not a model client."""
    if isinstance(client, type) or not (
        hasattr(client, "create") and hasattr(client, "model_info")
    ):
        raise ValueError(
            "model_client must be a client such as OpenAIChatCompletionClient(model=...), "
            f"not {client!r:.100}."
        )


def check_system_message(system_message: object) -> None:
    """Raise `ValueError` if `system_message` is neither text nor None."""
    if not isinstance(system_message, str | None):
        raise ValueError(f"system_message must be a text or None, not {system_message!r:.100}.")


async def ask_model(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    *,
    stream: bool,
    source: str,
    message_id: str,
    token: CancellationToken,
    tools: Sequence[ToolLike] = (),
    tool_choice: ToolChoice = "auto",
    json_output: JsonOutput = None,
) -> AsyncGenerator[ModelClientStreamingChunkEvent | CreateResult, None]:
    """Yield the pieces of the model's answer if `stream`, and the whole answer last.

    `source` is the agent, and `message_id` the message that will hold the answer. Raise
    `CancelledError` if `token` is cancelled, and the errors of the client.
    """
    shown = visible_messages(client, messages)
    if not stream:
        with cancelled_by(token):
            result = await client.create(
                shown,
                tools=tools,
                tool_choice=tool_choice,
                json_output=json_output,
                cancellation_token=token,
            )
        yield result
        return
    pieces = client.create_stream(
        shown,
        tools=tools,
        tool_choice=tool_choice,
        json_output=json_output,
        cancellation_token=token,
    )
    async with aclosing(until_cancelled(pieces, token)) as answer:
        async for piece in answer:
            if isinstance(piece, str):
                yield ModelClientStreamingChunkEvent(
                    content=piece, source=source, full_message_id=message_id
                )
            else:
                yield piece
                return
    raise ModelOutputError(f"The model of {source} ended its stream without a CreateResult.")


def text_of(answer: CreateResult, error: str) -> str:
    """Return the text of `answer`. Raise `ModelOutputError` with the message `error` if none."""
    if not isinstance(answer.content, str):
        raise ModelOutputError(error)
    return answer.content


def cut_off_metadata(result: CreateResult) -> dict[str, str]:
    """Return what the metadata of a message with the text of `result` says if it is cut off."""
    return {"finish_reason": result.finish_reason} if result.finish_reason in _CUT_OFF else {}


def has_cut_off_text(message: BaseChatMessage) -> bool:
    """Return True if the metadata of `message` says that its text is cut off."""
    return message.metadata.get("finish_reason") in _CUT_OFF


def visible_messages(
    client: ChatCompletionClient, messages: Sequence[LLMMessage]
) -> list[LLMMessage]:
    """Return `messages`, with "<image>" for each image if the model has no vision."""
    if client.model_info["vision"]:
        return list(messages)
    return [_without_images(message) for message in messages]


def _without_images(message: LLMMessage) -> LLMMessage:
    if not isinstance(message, UserMessage) or isinstance(message.content, str):
        return message
    parts = [part if isinstance(part, str) else "<image>" for part in message.content]
    return UserMessage(content="\n".join(parts), source=message.source)
