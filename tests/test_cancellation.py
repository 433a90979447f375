"""The cancellation token: works from any thread, and runs each callback exactly once."""

import asyncio
import concurrent.futures
import threading

from cellblock import CancellationToken


def test_second_cancel_runs_no_callback_again() -> None:
    token, calls = CancellationToken(), list[int]()
    token.add_callback(lambda: calls.append(1))
    assert not token.is_cancelled()
    token.cancel()
    token.cancel()
    assert (token.is_cancelled(), calls) == (True, [1])


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


def test_callback_added_after_cancel_runs_immediately() -> None:
    token, calls = CancellationToken(), list[int]()
    token.cancel()
    token.add_callback(lambda: calls.append(1))
    assert calls == [1]


def test_removed_callback_does_not_run() -> None:
    token, calls = CancellationToken(), list[int]()

    def callback() -> None:
        calls.append(1)

    token.add_callback(callback)
    token.remove_callback(callback)
    token.remove_callback(callback)
    token.cancel()
    assert calls == []


def test_callback_may_use_the_token() -> None:
    token, calls = CancellationToken(), list[bool]()
    token.add_callback(lambda: token.add_callback(lambda: calls.append(token.is_cancelled())))
    token.cancel()
    assert calls == [True]


def test_linked_future_is_returned_and_cancelled() -> None:
    token = CancellationToken()
    early: concurrent.futures.Future[None] = concurrent.futures.Future()
    late: concurrent.futures.Future[None] = concurrent.futures.Future()
    assert token.link_future(early) is early
    token.cancel()
    token.link_future(late)
    assert early.cancelled()
    assert late.cancelled()


def test_linked_task_is_cancelled() -> None:
    async def main() -> bool:
        token = CancellationToken()
        task = token.link_future(asyncio.ensure_future(asyncio.Event().wait()))
        token.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_callback_runs_once_when_threads_add_and_cancel_together() -> None:
    for _ in range(200):
        token, calls, ready = CancellationToken(), list[int](), threading.Barrier(4)

        def add(
            token: CancellationToken = token,
            calls: list[int] = calls,
            ready: threading.Barrier = ready,
        ) -> None:
            ready.wait()
            token.add_callback(lambda: calls.append(1))

        def cancel(token: CancellationToken = token, ready: threading.Barrier = ready) -> None:
            ready.wait()
            token.cancel()

        threads = [threading.Thread(target=target) for target in (add, add, cancel, cancel)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert calls == [1, 1]
