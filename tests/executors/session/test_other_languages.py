"""Blocks of a session that are not Python: they run in processes of their own."""

from __future__ import annotations

import asyncio

from cellblock import CancellationToken, CodeBlock, Event, Started, fold
from tests.executors.session.live_session import LiveSession, run_async


def test_a_block_in_another_language_sees_the_work_folder_but_not_the_variables(
    live: LiveSession,
) -> None:
    live.run_ok("import os\nopen('made.txt', 'w').write('by python')\nos.environ['SECRET'] = 'x'")
    assert (
        live.run_ok("cat made.txt; echo; echo $SECRET; echo made > back.txt", "sh") == "by python"
    )
    assert live.run_ok("open('back.txt').read()") == "'made\\n'"


def test_a_block_in_another_language_can_be_cancelled_before_its_process_exists(
    live: LiveSession,
) -> None:
    async def outcome_after(seconds: float) -> str:
        token = CancellationToken()
        block, events = CodeBlock("sleep 100", "sh"), list[Event]()
        async for event in live.executor.execute_stream([block], token):
            events.append(event)
            if isinstance(event, Started):
                asyncio.get_running_loop().call_later(seconds, token.cancel)
        return fold(events).blocks[0].outcome

    outcomes = [
        run_async(outcome_after(milliseconds / 1000)) for milliseconds in (0, 0, 1, 2, 4, 8)
    ]
    assert set(outcomes) == {"cancelled"}
