"""RayPool: judge programs on the nodes of a Ray cluster.

Ray schedules, spreads, repeats and scales: each task judges a few programs on one CPU of some node,
in sandboxes that its worker process keeps for the next task. Tasks of nodes that are lost run again
elsewhere. See https://docs.ray.io/en/latest/ray-core/tasks.html.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from .pool import WorkerPool
from .programs import Program
from .ray_connection import connect, import_ray, obstacle_to_network
from .verdicts import Verdict
from .worker import WorkerSettings

_TASK_SECONDS = 1.0  # that a task should take: a lost node costs as much
_MAX_PROGRAMS = 32  # of one task
_PER_CPU = 2  # tasks: one waits for each that runs, which also tells an autoscaler of the load
_RUNS_PER_CPU = 2  # programs that a task judges at a time: starting one also waits
_CPU_COUNT_SECONDS = 2.0  # for which a number of CPUs is believed
_SILENT_SECONDS = 30.0  # without an ended task, until it is said what they wait for
_log = logging.getLogger(__name__)

_pools: dict[str, WorkerPool] = {}  # at most one: see `_pool_of_process`


class RayPool:
    """Judge programs on a cluster. Entering connects to it, leaving cancels what runs.

    address   "auto", or an address of `ray.init`, such as "ray-head:6379". A connection that the
              process already has is used, and stays
    """

    def __init__(
        self, address: str, settings: WorkerSettings, retries: int, cpus: int | None
    ) -> None:
        """Use at most `cpus` CPUs.

        Raise `ModuleNotFoundError` without the extra `ray`, and `ValueError` if programs could use
        the network to get at the cluster.
        """
        if settings.has_network and (obstacle := obstacle_to_network()):
            raise ValueError(obstacle)
        self._ray: Any = import_ray("cluster=...")
        self._address, self._settings, self._retries = address, settings, retries
        self._cpus = cpus
        self._waiting = deque[tuple[Program, asyncio.Future[Verdict]]]()
        self._running = dict[Any, asyncio.Task[None]]()  # by the reference of Ray's task
        self._seconds = _TASK_SECONDS  # a program takes, as far as is known
        self._known_cpus, self._known_at = 1, float("-inf")
        self._must_disconnect = False
        self._ended = 0  # tasks
        self._watching: asyncio.Task[None] | None = None
        self._judge_on_node: Any = None
        self._saved_settings: Any = None

    @property
    def places(self) -> int:
        """How many programs may wait and run."""
        return _MAX_PROGRAMS * self._max_tasks()

    async def __aenter__(self) -> Self:
        """Connect. Raise `BackendError` if the cluster cannot be reached."""
        self._must_disconnect = await connect(self._ray, self._address)
        options = {
            "num_cpus": 1,
            "scheduling_strategy": "SPREAD",
            "max_retries": self._retries,
        }
        self._judge_on_node = self._ray.remote(**options)(_judge_on_node)
        self._saved_settings = self._ray.put(self._settings)
        self._watching = asyncio.create_task(self._say_when_nothing_ends())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for reference, task in self._running.items():
            self._ray.cancel(reference)
            task.cancel()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching, *self._running.values()})
        if self._must_disconnect:
            await asyncio.to_thread(self._ray.shutdown)

    async def judge(self, program: Program) -> Verdict:
        """Return the verdict on `program`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((program, future))
        self._start_tasks()
        return await future

    async def _say_when_nothing_ends(self) -> None:
        """Log what tasks may wait for, which Ray does not say, as often as none of them ends."""
        while True:
            before, had_tasks = self._ended, bool(self._running)
            await asyncio.sleep(_SILENT_SECONDS)
            if had_tasks and self._ended == before:
                free = dict[str, float]()
                with contextlib.suppress(Exception):  # the tasks themselves report what failed
                    free = await asyncio.to_thread(self._ray.available_resources)
                _log.warning(
                    "No task has ended for %g s. Each one needs a whole CPU of a node, and %g CPUs "
                    "of the cluster are free. Sessions of `cellblock serve --ray` and other jobs "
                    "hold theirs until they end.",
                    _SILENT_SECONDS,
                    free.get("CPU", 0),
                )

    def _max_tasks(self) -> int:
        if self._cpus is not None:
            return _PER_CPU * self._cpus
        if (now := time.monotonic()) - self._known_at > _CPU_COUNT_SECONDS:
            self._known_cpus = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            self._known_at = now
        return _PER_CPU * self._known_cpus

    def _start_tasks(self) -> None:
        """Start tasks for the programs that wait, unless enough run."""
        limit = self._max_tasks()
        while self._waiting and len(self._running) < limit:
            size = min(_MAX_PROGRAMS, max(1, int(_TASK_SECONDS / self._seconds)))
            jobs = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
            jobs = [job for job in jobs if not job[1].done()]  # cancelled
            if jobs:
                programs = [program for program, _ in jobs]
                reference = self._judge_on_node.remote(
                    self._saved_settings, self._retries, programs
                )
                self._running[reference] = asyncio.create_task(self._finish(reference, jobs))

    async def _finish(
        self, reference: Any, jobs: list[tuple[Program, asyncio.Future[Verdict]]]
    ) -> None:
        """Wait for a task, and pass on its verdicts."""
        try:
            verdicts: list[Verdict] = await reference
        except self._ray.exceptions.RayError as error:
            message = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
            attempts = self._retries + 1
            verdicts = [
                Verdict(id=each.id, outcome="not_judged", message=message, attempts=attempts)
                for each, _ in jobs
            ]
        else:
            self._seconds = max(1e-4, sum(each.wall_seconds for each in verdicts) / len(verdicts))
        finally:
            del self._running[reference]
            self._ended += 1
        for (_, future), verdict in zip(jobs, verdicts, strict=True):
            if not future.done():
                future.set_result(verdict)
        self._start_tasks()


def _judge_on_node(
    settings: WorkerSettings, retries: int, programs: list[Program]
) -> list[Verdict]:
    """Judge `programs`, in a task of Ray."""
    return asyncio.run(_judge_all(settings, retries, programs))


async def _judge_all(
    settings: WorkerSettings, retries: int, programs: list[Program]
) -> list[Verdict]:
    pool = await _pool_of_process(settings, retries)
    return await asyncio.gather(*map(pool.judge, programs))


async def _pool_of_process(settings: WorkerSettings, retries: int) -> WorkerPool:
    """Return the pool that this worker process of Ray keeps, made anew for other settings.

    Ray runs one task of ours at a time in a process, and ends the process when it is idle.
    """
    key = f"{retries} {settings.key}"
    for other in [other for other in _pools if other != key]:
        await _pools.pop(other).__aexit__(None, None, None)
    if key not in _pools:
        _pools[key] = WorkerPool(settings, _RUNS_PER_CPU, retries)
    return _pools[key]
