"""Turns: one task at a time, of whatever loop, in the order in which they came."""

import asyncio
import threading
import time

from cellblock.aio.cross_loop_lock import Turns


def test_one_at_a_time_in_many_loops() -> None:
    turns, inside, most = Turns(), 0, 0

    async def take() -> None:
        nonlocal inside, most
        for _ in range(50):
            async with turns.next():
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    async def several() -> None:
        await asyncio.gather(take(), take(), take())

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most, inside, any(thread.is_alive() for thread in threads)) == (1, 0, False)


def test_who_comes_first_is_first() -> None:
    async def main() -> list[int]:
        turns, order = Turns(), list[int]()

        async def take(number: int) -> None:
            async with turns.next():
                order.append(number)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(take(number) for number in range(20)))
        return order

    assert asyncio.run(main()) == list(range(20))


def test_who_is_cancelled_while_waiting_or_just_as_it_is_his_turn_holds_up_nobody() -> None:
    async def main() -> None:
        turns = Turns()

        async def take() -> None:
            async with turns.next():
                await asyncio.sleep(0)

        async with turns.next():
            early, late = asyncio.create_task(take()), asyncio.create_task(take())
            await asyncio.sleep(0)
            early.cancel()
            await asyncio.wait([early])
        late.cancel()  # it is his already, but he does not know yet
        await asyncio.wait([late])
        assert (early.cancelled(), late.cancelled()) == (True, True)
        await asyncio.wait_for(take(), 10)

    asyncio.run(main())


def test_a_turn_whose_loop_was_closed_goes_on() -> None:
    turns, taken, done = Turns(), threading.Event(), list[str]()
    loop = asyncio.new_event_loop()

    async def keep() -> None:
        async with turns.next():
            taken.set()
            await asyncio.Event().wait()

    async def take(name: str) -> None:
        async with turns.next():
            done.append(name)

    kept = loop.create_task(keep())
    loop.run_until_complete(asyncio.sleep(0.01))
    assert taken.is_set()
    waiting = threading.Thread(target=asyncio.run, args=(take("waited"),))
    waiting.start()
    while not turns.waiting:
        time.sleep(0.01)
    loop.close()
    waiting.join(10)
    asyncio.run(asyncio.wait_for(take("came later"), 10))
    assert done == ["waited", "came later"]
    kept._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - it is, on purpose
    del kept
