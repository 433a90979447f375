"""End Python threads that only help a library, so that the session can be copied.

A fork copies the calling thread only, and a lock that another thread holds stays locked in it. So
these threads end before the fork, by the event that their library offers for that, or as the idle
workers of an executor end. The library starts a new one when it needs it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

from ...linux import process_tree

# By module and class: the attribute with the `threading.Event` that ends such a thread.
_STOP_EVENTS = {
    ("tqdm._monitor", "TMonitor"): "was_killed",  # redraws bars; each new bar checks that one runs
}
_stopped_listeners: list[Any] = []  # of logging, until the next block
_GRACE = 0.5  # seconds; the thread may be drawing, or wait for a lock
_POLL_INTERVAL = 0.0002


def end_helper_threads() -> None:
    """End the helper threads of known libraries. One that does not end in time is left running."""
    found = [(thread, name) for thread in threading.enumerate() if (name := _stop_event(thread))]
    for thread, name in found:
        getattr(thread, name).set()
    ending = [thread for thread in threading.enumerate() if _is_ending(thread)]
    if found or ending:
        join_threads([*(thread for thread, _ in found), *ending], time.monotonic() + _GRACE)
    _end_loky_workers()
    _stop_listeners()
    _end_idle_workers()


def restart_listeners() -> None:
    """Start again what the last `end_helper_threads` has stopped in this process or its parent."""
    while _stopped_listeners:
        listener = _stopped_listeners.pop()
        if listener._thread is None:  # user code has not started it meanwhile
            listener.start()


def is_helper(thread: object) -> bool:
    """Return True if `end_helper_threads` ends `thread`, or waits for its end."""
    return (
        bool(_stop_event(thread))
        or _is_ending(thread)
        or _executor_of_idle(thread) is not None
        or _listener_of(thread) is not None
    )


def join_threads(threads: Iterable[Any], deadline: float) -> None:
    """Wait until `deadline` for the end of `threads`, for Python and for the kernel."""
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        # For the kernel, a thread ends a moment later than for Python.
        while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)


def _stop_event(thread: object) -> str:
    for (module, name), event in _STOP_EVENTS.items():
        # The class itself, not its name: user code may name its own class alike.
        if type(thread) is getattr(sys.modules.get(module), name, None):
            return event
    return ""


def _is_ending(thread: Any) -> bool:
    """Return True if `thread` has nothing left to do.

    Up to Python 3.11, asyncio waits for each process in a thread, which lives a little longer.
    """
    attributes = thread.__dict__.copy()
    if "_target" not in attributes:  # Python deletes it when the function has returned
        return True
    watcher: Any = getattr(sys.modules.get("asyncio.unix_events"), "ThreadedChildWatcher", None)
    function: Any = getattr(attributes["_target"], "__func__", None)
    if watcher is None or function is not watcher._do_waitpid:
        return False
    with contextlib.suppress(OSError):  # with too many open files it is not known
        _, pid, *_ = attributes["_args"]
        return process_tree.has_ended(pid)
    return False


def _end_idle_workers() -> None:
    """End the workers of `ThreadPoolExecutor`s if no other Python thread would prevent a copy.

    asyncio's default executor is one of these.
    """
    own = threading.get_ident()
    executors: dict[int, tuple[Any, list[threading.Thread]]] = {}
    for thread in threading.enumerate():
        if thread.ident == own:
            continue
        if (executor := _executor_of_idle(thread)) is None:
            return
        executors.setdefault(id(executor), (executor, []))[1].append(thread)
    for executor, workers in executors.values():
        _end_workers(executor, workers)


def _executor_of_idle(thread: Any) -> Any:
    """Return the executor whose worker `thread` is if it has no task, else None."""
    module: Any = sys.modules.get("concurrent.futures.thread")
    frame = sys._current_frames().get(thread.ident)  # pyright: ignore[reportPrivateUsage] - of CPython
    # A worker without a task waits in the C function of its queue.
    if module is None or frame is None or frame.f_code is not module._worker.__code__:
        return None
    arguments: Any = getattr(thread, "_args", None)
    if not arguments or type(arguments[0]) is not weakref.ref:
        return None
    executor: Any = arguments[0]()
    return executor if isinstance(executor, module.ThreadPoolExecutor) else None


def _end_workers(executor: Any, workers: list[threading.Thread]) -> None:
    """End the workers as a shutdown does, then let the executor start new ones.

    Tasks that were added in the meantime are done first.
    """
    with executor._shutdown_lock:
        if executor._shutdown:
            return  # they end by themselves
        executor._shutdown = True
        executor._work_queue.put(None)
    try:
        join_threads(workers, time.monotonic() + _GRACE)
    finally:
        with executor._shutdown_lock:
            executor._shutdown = False
            executor._threads = {worker for worker in executor._threads if worker.is_alive()}
            executor._idle_semaphore = threading.Semaphore(0)
            while not executor._threads and not executor._work_queue.empty():
                executor._work_queue.get_nowait()  # the worker's sign to end


def _listener_of(thread: Any) -> Any:
    """Return the idle `logging.handlers.QueueListener` whose thread this is, else None."""
    kind: Any = getattr(sys.modules.get("logging.handlers"), "QueueListener", None)
    listener: Any = getattr(getattr(thread, "_target", None), "__self__", None)
    if kind is None or not isinstance(listener, kind) or listener._thread is not thread:
        return None
    records: Any = listener.queue
    is_idle = type(records) is queue.Queue and records.unfinished_tasks == 0
    return listener if is_idle else None


def _stop_listeners() -> None:
    """Stop the idle listeners of logging if no other Python thread would prevent a copy."""
    own = threading.get_ident()
    found = {
        thread: _listener_of(thread) for thread in threading.enumerate() if thread.ident != own
    }
    if not all(found[thread] or _executor_of_idle(thread) for thread in found):
        return
    ending = [thread for thread in found if found[thread]]
    for thread in ending:
        found[thread].enqueue_sentinel()
    join_threads(ending, time.monotonic() + _GRACE)
    for thread in ending:
        if not thread.is_alive():
            found[thread]._thread = None
            _stopped_listeners.append(found[thread])


def _end_loky_workers() -> None:
    """End the idle processes of joblib and the threads that manage them.

    The next parallel operation starts new ones. Mostly the end of the block has ended them already.
    """
    for name in ("joblib.externals.loky.reusable_executor", "loky.reusable_executor"):
        module: Any = sys.modules.get(name)
        executor: Any = getattr(module, "_executor", None)
        if executor is None or executor._pending_work_items:
            continue
        threads = [executor._executor_manager_thread, getattr(executor._call_queue, "_thread", 0)]
        executor.shutdown(wait=False, kill_workers=True)
        module._executor = None
        join_threads(filter(None, threads), time.monotonic() + _GRACE)
