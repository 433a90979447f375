"""The queue of runs: bounded for each key, and fair between keys."""

from __future__ import annotations

import asyncio

import pytest

from cellblock.server.owners import Owner, Quotas
from cellblock.server.refusals import TooManyRuns
from cellblock.server.sessions.run_queue import CpuPlace, CpuPlaces, RunQueue

pytestmark = pytest.mark.anyio
ONE, TWO = Owner("one"), Owner("two")


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _run(queue: RunQueue, owner: Owner, order: list[str], gate: asyncio.Event) -> None:
    async with queue.admit(owner), queue.turn(owner):
        order.append(owner.id)
        await gate.wait()


async def _order_of(queue: RunQueue, owners: list[Owner]) -> list[str]:
    order, gate = list[str](), asyncio.Event()
    tasks = list[asyncio.Task[None]]()
    for owner in owners:
        tasks.append(asyncio.create_task(_run(queue, owner, order, gate)))
        await _settle()
    gate.set()
    await asyncio.gather(*tasks)
    assert (queue.running_count, queue.waiting_count) == (0, 0)
    return order


async def test_keys_take_turns() -> None:
    order = await _order_of(RunQueue(1, 10), [ONE, ONE, ONE, ONE, TWO, TWO])
    assert order == ["one", "one", "two", "one", "two", "one"]


async def test_a_key_with_a_quota_does_not_block_others() -> None:
    few = Owner("few", Quotas(running=1))
    queue, order, gate = RunQueue(2, 10), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(_run(queue, owner, order, gate)) for owner in (few, few, TWO)]
    await _settle()
    assert order == ["few", "two"]
    gate.set()
    await asyncio.gather(*tasks)


async def test_a_full_queue_refuses_and_a_cancelled_run_leaves_it() -> None:
    queue, order, gate = RunQueue(1, 1), list[str](), asyncio.Event()
    first = asyncio.create_task(_run(queue, ONE, order, gate))
    second = asyncio.create_task(_run(queue, ONE, order, gate))
    await _settle()
    for mean_seconds, retry_after in ((0.0, 1), (20.0, 20), (1000.0, 60)):
        queue.mean_seconds = mean_seconds
        with pytest.raises(TooManyRuns) as refused:
            await _run(queue, ONE, order, gate)
        assert refused.value.retry_after == retry_after
    second.cancel()
    await asyncio.wait([second])
    third = asyncio.create_task(_run(queue, ONE, order, gate))
    await _settle()
    gate.set()
    await asyncio.gather(first, third)
    assert order == ["one", "one"]
    assert (queue.running_count, queue.waiting_count) == (0, 0)


async def test_keys_take_turns_for_places_and_those_who_wait_hold_up_no_others() -> None:
    queue, places, order = RunQueue(8, 10), CpuPlaces(1), list[str]()
    gate = asyncio.Event()

    async def judge(owner: Owner, name: str) -> None:
        async with queue.admit(owner), queue.turn(owner, CpuPlace(places)):
            order.append(name)
            await gate.wait()

    tasks = list[asyncio.Task[None]]()
    for owner, name in ((ONE, "a"), (ONE, "b"), (ONE, "c"), (ONE, "d"), (TWO, "e")):
        tasks.append(asyncio.create_task(judge(owner, name)))
        await _settle()
    tasks[2].cancel()
    other = asyncio.create_task(_run(queue, ONE, order, gate))
    await _settle()
    assert (order, queue.running_count) == (["a", "one"], 2)
    gate.set()
    await asyncio.gather(*tasks, other, return_exceptions=True)
    assert order == ["a", "one", "b", "e", "d"]
    assert (places.free, queue.running_count, queue.waiting_count) == (1, 0, 0)


async def test_a_long_run_leaves_its_place_and_continues() -> None:
    queue, places = RunQueue(8, 10), CpuPlaces(1)
    async with queue.turn(ONE, CpuPlace(places, 0.01)), queue.turn(TWO, place := CpuPlace(places)):
        assert (queue.running_count, places.free) == (2, 0)
        place.leave()
        place.leave()
        assert places.free == 1
    assert places.free == 1
