"""Contexts; what they have in common with AutoGen's is in `tests/transcripts`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from cellblock import ComponentError, load_component
from cellblock.models import (
    AssistantMessage,
    BufferedChatCompletionContext,
    ChatCompletionContext,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    HeadAndTailChatCompletionContext,
    Image,
    LLMMessage,
    ReplayChatCompletionClient,
    TokenLimitedChatCompletionContext,
    ToolSchema,
    UnboundedChatCompletionContext,
    UserMessage,
)

CALLS = AssistantMessage(
    content=[FunctionCall(id="1", name="add", arguments='{"a": 1}')], source="assistant"
)
RESULTS = FunctionExecutionResultMessage(
    content=[FunctionExecutionResult(content="2", name="add", call_id="1", is_error=False)]
)
PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
MODEL = ReplayChatCompletionClient([])


def user(text: str) -> UserMessage:
    return UserMessage(content=text, source="user")


def shown(context: ChatCompletionContext, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    async def run() -> list[LLMMessage]:
        for message in messages:
            await context.add_message(message)
        return await context.get_messages()

    return asyncio.run(run())


def all_kinds() -> list[ChatCompletionContext]:
    initial = [user("initial"), CALLS, RESULTS]
    tool: ToolSchema = {"name": "add", "description": "Adds."}
    return [
        UnboundedChatCompletionContext(initial),
        BufferedChatCompletionContext(2, initial),
        HeadAndTailChatCompletionContext(1, 2, initial),
        TokenLimitedChatCompletionContext(
            MODEL, token_limit=7, tool_schema=[tool], initial_messages=initial
        ),
    ]


@pytest.mark.parametrize("context", all_kinds(), ids=lambda each: type(each).__name__)
def test_a_loaded_context_is_like_the_saved_one(context: ChatCompletionContext) -> None:
    saved = context.dump_component()
    loaded = load_component(saved.to_json())
    assert isinstance(loaded, ChatCompletionContext)
    assert type(loaded) is type(context)
    assert loaded.dump_component() == saved
    assert shown(loaded, [user("a"), user("b")]) == shown(context, [user("a"), user("b")])


@pytest.mark.parametrize("context", all_kinds(), ids=lambda each: type(each).__name__)
def test_the_callers_list_is_not_the_contexts_own(context: ChatCompletionContext) -> None:
    before = shown(context, [user("a")])
    before.clear()
    assert shown(context, []) != []


async def test_the_state_survives_json_with_calls_and_images() -> None:
    context = UnboundedChatCompletionContext()
    messages = [CALLS, RESULTS, UserMessage(content=["see", PIXEL], source="user")]
    for message in messages:
        await context.add_message(message)
    state = json.loads(json.dumps(await context.save_state()))
    other = UnboundedChatCompletionContext([user("gone")])
    await other.load_state(state)
    assert await other.get_messages() == messages


@pytest.mark.parametrize("state", [{}, {"messages": [{"type": "Unknown"}]}, {"messages": 3}])
async def test_a_damaged_state_is_refused_and_changes_nothing(state: dict[str, object]) -> None:
    context = UnboundedChatCompletionContext([user("a")])
    with pytest.raises(ValueError, match="messages in the state of a context are damaged"):
        await context.load_state(state)
    assert await context.get_messages() == [user("a")]


@pytest.mark.parametrize("position", range(5))
def test_a_token_limit_removes_calls_only_together_with_their_results(position: int) -> None:
    messages: list[LLMMessage] = [user("a b c") for _ in range(4)]
    messages[position:position] = [CALLS, RESULTS]
    for limit in range(1, 13):
        left = shown(TokenLimitedChatCompletionContext(MODEL, token_limit=limit), messages)
        assert (CALLS in left) == (RESULTS in left)
        assert MODEL.count_tokens(left) <= limit


def test_a_token_limit_that_nothing_fits_leaves_no_message() -> None:
    assert shown(TokenLimitedChatCompletionContext(MODEL, token_limit=1), [user("a b")]) == []


def test_wrong_sizes_in_a_configuration_are_refused() -> None:
    saved = BufferedChatCompletionContext(2).dump_component().to_dict()
    for wrong in ("2", 0, None):
        with pytest.raises(ComponentError, match="buffer_size"):
            load_component({**saved, "config": {"buffer_size": wrong}})


def test_ones_own_context_needs_get_messages_only() -> None:
    class NoThoughts(UnboundedChatCompletionContext):
        async def get_messages(self) -> list[LLMMessage]:
            return [each for each in await super().get_messages() if each.type != "UserMessage"]

    assert shown(NoThoughts(), [user("a"), CALLS]) == [CALLS]
