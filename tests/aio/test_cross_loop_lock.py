"""The cross-loop lock: one holder at a time, in order, whatever loops the tasks run on."""

import asyncio
import threading
import time

from cellblock.aio.cross_loop_lock import CrossLoopLock


def test_one_holder_at_a_time_across_loops() -> None:
    lock, inside, highest = CrossLoopLock(), 0, 0

    async def hold() -> None:
        nonlocal inside, highest
        for _ in range(50):
            async with lock.acquire():
                inside += 1
                highest = max(highest, inside)
                await asyncio.sleep(0)
                inside -= 1

    async def several() -> None:
        await asyncio.gather(hold(), hold(), hold())

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (highest, inside, any(thread.is_alive() for thread in threads)) == (1, 0, False)


def test_tasks_get_the_lock_in_the_order_of_their_requests() -> None:
    async def main() -> list[int]:
        lock, order = CrossLoopLock(), list[int]()

        async def hold(number: int) -> None:
            async with lock.acquire():
                order.append(number)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(hold(number) for number in range(20)))
        return order

    assert asyncio.run(main()) == list(range(20))


def test_cancelled_waiter_does_not_block_others() -> None:
    async def main() -> None:
        lock = CrossLoopLock()

        async def hold() -> None:
            async with lock.acquire():
                await asyncio.sleep(0)

        async with lock.acquire():
            early, late = asyncio.create_task(hold()), asyncio.create_task(hold())
            await asyncio.sleep(0)
            early.cancel()
            await asyncio.wait([early])
        late.cancel()  # the lock is already granted to it, but the task has not run yet
        await asyncio.wait([late])
        assert (early.cancelled(), late.cancelled()) == (True, True)
        await asyncio.wait_for(hold(), 10)

    asyncio.run(main())


def test_lock_is_released_when_the_loop_of_its_holder_is_closed() -> None:
    lock, is_held, done = CrossLoopLock(), threading.Event(), list[str]()
    loop = asyncio.new_event_loop()

    async def hold_forever() -> None:
        async with lock.acquire():
            is_held.set()
            await asyncio.Event().wait()

    async def hold(name: str) -> None:
        async with lock.acquire():
            done.append(name)

    holder = loop.create_task(hold_forever())
    loop.run_until_complete(asyncio.to_thread(is_held.wait))
    waiting = threading.Thread(target=asyncio.run, args=(hold("waited"),))
    waiting.start()
    while not lock.waiters:
        time.sleep(0.01)
    loop.close()
    waiting.join(10)
    asyncio.run(asyncio.wait_for(hold("came later"), 10))
    assert done == ["waited", "came later"]
    holder._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - intended here
    del holder
