"""The cancellation token: works from any thread, and runs each callback exactly once."""

import asyncio
import concurrent.futures
import threading

from cellblock import CancellationToken


def test_each_callback_runs_once_unless_it_was_removed() -> None:
    token, calls = CancellationToken(), list[str]()

    def removed() -> None:
        calls.append("removed")

    token.add_callback(lambda: calls.append("early"))
    token.add_callback(removed)
    token.remove_callback(removed)
    token.remove_callback(removed)
    assert not token.is_cancelled()
    token.cancel()
    token.cancel()
    assert (token.is_cancelled(), calls) == (True, ["early"])
    token.add_callback(lambda: calls.append("late"))
    assert calls == ["early", "late"]


def test_further_cancels_run_the_callbacks_for_repetitions() -> None:
    token, calls = CancellationToken(), list[int]()

    def callback() -> None:
        calls.append(1)

    token.add_repeat_callback(callback)
    token.cancel()
    assert calls == []
    token.cancel()
    token.cancel()
    token.remove_callback(callback)
    token.cancel()
    assert calls == [1, 1]


def test_callback_may_use_the_token() -> None:
    token, calls = CancellationToken(), list[bool]()
    token.add_callback(lambda: token.add_callback(lambda: calls.append(token.is_cancelled())))
    token.cancel()
    assert calls == [True]


def test_linked_futures_and_tasks_are_returned_and_cancelled() -> None:
    async def main() -> bool:
        task = token.link_future(asyncio.ensure_future(asyncio.Event().wait()))
        token.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    token = CancellationToken()
    early: concurrent.futures.Future[None] = concurrent.futures.Future()
    late: concurrent.futures.Future[None] = concurrent.futures.Future()
    assert token.link_future(early) is early
    assert asyncio.run(main())
    token.link_future(late)
    assert early.cancelled()
    assert late.cancelled()


def test_callback_runs_once_when_threads_add_and_cancel_together() -> None:
    for _ in range(200):
        assert calls_of_threads(CancellationToken(), threading.Barrier(4)) == [1, 1]


def calls_of_threads(token: CancellationToken, ready: threading.Barrier) -> list[int]:
    """Return the calls after two threads have added a callback and two have cancelled."""
    calls = list[int]()

    def add() -> None:
        ready.wait()
        token.add_callback(lambda: calls.append(1))

    def cancel() -> None:
        ready.wait()
        token.cancel()

    threads = [threading.Thread(target=target) for target in (add, add, cancel, cancel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return calls
