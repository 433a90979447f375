"""What conditions do beyond AutoGen's: see also the scenario `conditions`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.agents import CodeOutputEvent, ModelClientStreamingChunkEvent, TextMessage
from cellblock.errors import TerminatedException
from cellblock.teams import (
    FunctionalTermination,
    MaxMessageTermination,
    OrTerminationCondition,
    SourceMatchTermination,
    StopMessageTermination,
    TerminationCondition,
    TextMentionTermination,
)

TEXT = TextMessage(content="x", source="a")


@pytest.mark.parametrize(
    "condition",
    [
        MaxMessageTermination(1, include_agent_event=True),
        TextMentionTermination("x"),
        SourceMatchTermination(["a"]),
        FunctionalTermination(lambda messages: len(messages) > 0),
    ],
)
async def test_transient_events_do_not_count(condition: TerminationCondition) -> None:
    chunk = ModelClientStreamingChunkEvent(content="x", source="a")
    output = CodeOutputEvent(content="x", source="a", block=0, stream="stdout")
    assert await condition([chunk, output]) is None
    assert await condition([chunk, TEXT]) is not None


async def test_a_condition_that_was_reached_must_be_reset() -> None:
    either = StopMessageTermination() | MaxMessageTermination(1)
    both = MaxMessageTermination(1) & MaxMessageTermination(1)
    for condition in (MaxMessageTermination(1), either, both):
        assert await condition([TEXT]) is not None
        with pytest.raises(TerminatedException):
            await condition([TEXT])
        await condition.reset()
        assert await condition([TEXT]) is not None


def test_wrong_arguments_are_refused() -> None:
    text: Any = "x"
    with pytest.raises(ValueError, match="at least 1"):
        MaxMessageTermination(0)
    with pytest.raises(ValueError, match="text of TextMentionTermination is empty"):
        TextMentionTermination("")
    with pytest.raises(ValueError, match="must be an object such as .*, not 'x'"):
        OrTerminationCondition(MaxMessageTermination(1), text)
    with pytest.raises(ValueError, match="must be an object such as .*, not 'x'"):
        _ = MaxMessageTermination(1) & text


def test_an_async_function_is_awaited() -> None:
    async def never(messages: object) -> bool:
        return False

    assert asyncio.run(FunctionalTermination(never)([TEXT])) is None
