"""The factories of this machine: the executors of sessions and programs of each owner."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import CellblockError
from ...executors.command_line.docker import IMAGE, DockerCommandLineCodeExecutor
from ...executors.session.docker import DockerSessionCodeExecutor
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ...executors.workspace.cleanup_watchdog import CleanupWatchdog
from ...executors.workspace.full_disk import report_full_disk
from ...limits import Limits
from ...policy import Policy
from ...runtime.linux.safe_folder import remove_tree
from ..owners import ANONYMOUS, ANONYMOUS_ID, Owner
from ..refusals import PolicyNotSupported
from ..settings import ServedSettings
from .disk_quota import disk_bytes
from .executors import ServedExecutor, SessionFactory
from .files import DATA_DIR
from .local_executor import LocalExecutor
from .sandbox_program import SandboxProgram
from .warm_server import WarmServer, check_mounts

_MAX_IDLE_SECONDS = 60.0  # until the server of a key ends that has no session


class _TemporaryDir:
    """A folder that is removed by `remove`, or soon after this process was killed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cellblock-data-"))
        # Users of containers may pass through to their own folder, but not list this one.
        self.path.chmod(0o711)
        self._watchdog = CleanupWatchdog(self.path)

    async def remove(self) -> None:
        """Remove the folder with its contents."""
        await asyncio.to_thread(self._watchdog.remove)


class _LocalFactory(SessionFactory):
    program_places = os.cpu_count() or 1

    async def disk_bytes(self, executors: Sequence[ServedExecutor]) -> int:
        """See `SessionFactory`."""

        def measure() -> int:
            places = [local(each).executor.place for each in executors]
            return disk_bytes(folder for place in places for folder in place.writable_folders())

        return await asyncio.to_thread(measure)


def local(executor: ServedExecutor) -> LocalExecutor:
    """Return an executor, which must be one of this machine."""
    assert isinstance(executor, LocalExecutor)
    return executor


class SandboxSessions(_LocalFactory):
    """Sessions in the sandbox. Those of one owner are forked from one server, which has no others.

    Use it with `async with`. Entering starts a server, which the first owner gets that has no
    its own limits and policy; then the next one is started. The server of a key ends when it has
    had no session for a while. Executors of programs have a server for each owner, too. They are
    reset and used again.
    """

    def __init__(self, settings: ServedSettings) -> None:
        self._settings = settings
        self._idle_seconds = min(settings.idle_seconds, _MAX_IDLE_SECONDS)
        self._spare = WarmServer(settings)
        # By owner, and the limits and policy that the owner had when they started.
        self._servers: dict[tuple[str, str], WarmServer] = {}
        # By group. The last one was used last.
        self._idle_programs = defaultdict[str, list[SandboxProgram]](list)
        self._tasks = set[asyncio.Task[None]]()
        self._exit_stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> SandboxSessions:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._stop_servers)
            await self._spare.get()
            self._start_task(self._stop_idle_servers())
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._exit_stack.aclose()

    async def make(self, owner: Owner) -> LocalExecutor:
        """Return a session that is not started yet. Raise what starting a server raises."""
        settings = owner.overrides.apply_to(self._settings)
        server = await self._server_for(owner, settings).get()
        return LocalExecutor(SandboxSessionCodeExecutor(settings.run_seconds, server=server))

    async def make_program(self, owner: Owner) -> SandboxProgram:
        """Return an executor without traces of earlier code. Raise `PolicyNotSupported`."""
        group = f"{owner.id} {_name(owner.overrides.limits, owner.overrides.policy)}"
        if idle := self._idle_programs[group]:
            return idle.pop()
        settings = owner.overrides.apply_to(self._settings)
        check_mounts(settings.policy)
        return SandboxProgram(settings, group)

    async def release(self, executor: ServedExecutor, *, is_idle: bool) -> None:
        """Stop an executor, or keep it for other programs of its owner if no code runs in it."""
        if is_idle and isinstance(executor, SandboxProgram) and await executor.reset():
            executor.idle_since = time.monotonic()
            self._idle_programs[executor.group].append(executor)
        else:
            await local(executor).executor.stop()

    def _server_for(self, owner: Owner, settings: ServedSettings) -> WarmServer:
        own = _name(settings.limits, settings.policy.to_dict())
        if (owner.id, own) not in self._servers:
            is_usual = own == _name(self._settings.limits, self._settings.policy.to_dict())
            self._servers[owner.id, own] = self._spare if is_usual else WarmServer(settings)
            if is_usual:
                self._spare = WarmServer(settings)
                if owner.id != ANONYMOUS_ID:  # otherwise no other owner comes
                    self._start_task(self._start_spare())
        return self._servers[owner.id, own]

    async def _start_spare(self) -> None:
        with contextlib.suppress(CellblockError):  # the owner who gets it tries again
            await self._spare.get()

    async def _stop_idle_servers(self) -> None:
        while True:
            await asyncio.sleep(self._idle_seconds / 2)
            for (owner_id, _), server in list(self._servers.items()):
                if owner_id != ANONYMOUS_ID:
                    await server.stop_if_idle(self._idle_seconds)
            await self._stop_programs(time.monotonic() - self._idle_seconds)

    async def _stop_programs(self, idle_since: float) -> None:
        """Stop the executors that were not used after `idle_since`."""
        for group, idle in list(self._idle_programs.items()):
            while idle and idle[0].idle_since <= idle_since:
                await idle.pop(0).executor.stop()
            if not idle and self._idle_programs[group] is idle:
                del self._idle_programs[group]

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_servers(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_programs(time.monotonic())
        await asyncio.gather(*(server.stop() for server in (self._spare, *self._servers.values())))


def _name(limits: Limits, policy: Mapping[str, Any]) -> str:
    return json.dumps([limits.to_dict(), dict(policy)], sort_keys=True)


class DockerSessions(_LocalFactory):
    """Sessions in a container each. Use it with `async with`.

    Entering starts one session and ends it, so that an unusable image is reported immediately.
    """

    def __init__(self, settings: ServedSettings) -> None:
        self._settings = settings
        self._work_dirs: _TemporaryDir | None = None

    async def __aenter__(self) -> DockerSessions:
        self._work_dirs = _TemporaryDir()
        try:
            session = await self.make(ANONYMOUS)
            try:
                await session.start("")  # pulls the image and installs packages
            finally:
                await self.release(session, is_idle=True)
        except BaseException:
            await self._work_dirs.remove()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Remove the folders. Each session removes its container."""
        assert self._work_dirs is not None
        await self._work_dirs.remove()

    async def make(self, owner: Owner) -> LocalExecutor:
        """Return a session that is not started yet. Raise `PolicyNotSupported`."""
        return self._make(owner, DockerSessionCodeExecutor)

    async def make_program(self, owner: Owner) -> LocalExecutor:
        """Return an executor that is not started yet. Raise `PolicyNotSupported`."""
        return self._make(owner, DockerCommandLineCodeExecutor)

    async def release(self, executor: ServedExecutor, *, is_idle: bool) -> None:
        """Stop an executor and remove its folder."""
        stopped = local(executor).executor
        await stopped.stop()
        await asyncio.to_thread(remove_tree, str(stopped.work_dir))

    def _make(
        self, owner: Owner, kind: type[DockerCommandLineCodeExecutor | DockerSessionCodeExecutor]
    ) -> LocalExecutor:
        assert self._work_dirs is not None
        settings = owner.overrides.apply_to(self._settings)
        _check_container_policy(settings.policy)
        with report_full_disk("A session cannot be started"):
            work_dir = tempfile.mkdtemp(prefix="cellblock-work-", dir=self._work_dirs.path)
        executor = kind(
            settings.image or IMAGE,
            timeout=settings.run_seconds,
            work_dir=work_dir,
            extra_volumes={work_dir: {"bind": DATA_DIR, "mode": "rw"}},
            # The default image has no IPython, which sessions need.
            packages=settings.packages if settings.image else ("ipython", *settings.packages),
            limits=settings.limits,
            network="bridge" if settings.policy.network == "host" else "none",
            delete_tmp_files=True,
        )
        return LocalExecutor(executor, fork_obstacle="--executor docker")


def _check_container_policy(policy: Policy) -> None:
    """Raise `PolicyNotSupported` if a policy has what sessions in containers cannot have."""
    names = ("read_only", "read_write", "environment")
    if given := [name for name in names if getattr(policy, name)]:
        raise PolicyNotSupported(
            f"The policy of this key has {', '.join(given)}, which sessions in containers cannot "
            "have. Use a key without it, or a server with --executor sandbox."
        )


def local_factory(settings: ServedSettings) -> SessionFactory:
    """Return the factory of this machine that `settings` name."""
    return SandboxSessions(settings) if settings.executor == "sandbox" else DockerSessions(settings)
