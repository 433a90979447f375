"""Ask a model on behalf of an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..cancellation import CancellationToken
from ..errors import ModelOutputError
from ..models.client import ChatCompletionClient, JsonOutput, ToolChoice
from ..models.messages import CreateResult, LLMMessage, UserMessage
from ..models.tool_schema import ToolLike
from .cancellable import cancelled_by, until_cancelled
from .messages import ModelClientStreamingChunkEvent


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
