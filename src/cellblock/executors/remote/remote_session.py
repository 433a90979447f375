"""RemoteSession: one session of a pool, prepared for blocks, and replaced when it is lost."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...errors import BackendError, FunctionError, ServiceError, WorkspaceError
from ...functions.loading import code_to_load_functions
from ...functions.module import FunctionModule
from ..workspace.folder_scan import IGNORED_NAMES
from ..workspace.workspace import OUTSIDE_WORKSPACE_TEXT
from .dialects import Execution, RemoteFile
from .session_client import SessionClient
from .session_code import (
    CHECK_MARK,
    ENTER_FOLDER,
    LIST_PACKAGES,
    code_to_save_file,
    missing_packages,
    parse_packages,
)

_log = logging.getLogger(__name__)
_RUN_TASK = "sending code block to endpoint"
_SETUP_SECONDS = 60  # for each piece of code that prepares the session
_DELETE_SECONDS = 10.0
_LOST_OUTPUT = "The service did not end the code at its time limit: its output is lost."
_EXPIRED = "The session had expired before the block: its variables and files were gone."
_REPLACED = "The session was replaced by a new one: its variables and files are gone."


@dataclass(frozen=True)
class Waits:
    """How many seconds a session waits for its service.

    check    after this time without a run, it is checked that the session has not expired
    answer   beyond a time limit, for the service to end the code and to answer
    settle   for the session to be free again after a run was abandoned
    """

    check: float = 60.0
    answer: float = 20.0
    settle: float = 15.0


@dataclass(frozen=True)
class RemoteRun:
    """How the run of a block ended.

    end            "reported" by the service; else why the run was abandoned, or "refused" because
                   its file name leads out of the folder
    execution      what the service reports; None otherwise
    wall_seconds   time that the code ran
    files          the files that the block created or changed
    notice         what happened to the session
    """

    end: Literal["reported", "timeout", "cancelled", "refused"]
    execution: Execution | None
    wall_seconds: float
    files: tuple[RemoteFile, ...] = ()
    notice: str = ""


class RemoteSession:
    """The session that `make_client` reaches by an identifier.

    Calls of `run` must not overlap.
    """

    def __init__(
        self,
        make_client: Callable[[str], SessionClient],
        identifier: str,
        functions: FunctionModule,
        waits: Waits = Waits(),
    ) -> None:
        self._make_client, self._functions, self._waits = make_client, functions, waits
        self.client = make_client(identifier)
        self._is_prepared = False
        self._last_used = 0.0
        self._known_files: dict[str, RemoteFile] = {}

    async def prepare(self) -> None:
        """Prepare the session for blocks, if it is not. Raise `BackendError`, `FunctionError`."""
        if self._is_prepared:
            return
        entered = await self._run_own(ENTER_FOLDER)
        if entered.status != "succeeded":
            raise BackendError(
                f"Failed to set up Azure container working directory: {_report(entered)}"
            )
        if self._functions.functions:
            await self._load_functions()
        self._known_files = await self._list_files()
        self._is_prepared, self._last_used = True, time.monotonic()

    async def _load_functions(self) -> None:
        required = self._functions.packages
        missing = missing_packages(required, await self.packages() if required else ())
        if missing:
            raise FunctionError(
                f"Packages unavailable in environment: {', '.join(missing)}. "
                "Remove them from the functions, or use a pool that has them."
            )
        names = ", ".join(self._functions.names)
        code = f"from {self._functions.module_name} import {names}\n"
        loaded = await self._run_own(code_to_load_functions(self._functions) + code)
        if loaded.status != "succeeded":
            raise FunctionError(f"Functions failed to load: {_report(loaded)}")

    async def packages(self) -> set[str]:
        """Return the names of the packages in the session. Raise `BackendError`."""
        listed = await self._run_own(LIST_PACKAGES)
        try:
            if listed.status == "succeeded":
                return parse_packages(listed.stdout)
        except (ValueError, RecursionError):
            pass
        raise BackendError(f"Failed to get list of available packages: {_report(listed)}")

    async def run(
        self, source: str, code: str, file_name: str | None, seconds: float | None
    ) -> RemoteRun:
        """Run `code` for at most `seconds`, and first save `source` as `file_name` if it is given.

        Raise `ServiceError`, and what `prepare` raises. If the task is cancelled, the code may
        still run: call `abandon`.
        """
        notice = await self._prepare_if_expired()
        await self.prepare()
        started = time.monotonic()
        try:
            async with asyncio.timeout(None if seconds is None else seconds + self._waits.answer):
                if file_name is not None and not await self._save_file(file_name, source):
                    return RemoteRun("refused", None, 0.0, notice=notice)
                whole_seconds = None if seconds is None else math.ceil(seconds)
                execution = await self.client.execute(code, whole_seconds, _RUN_TASK)
        except TimeoutError:
            notices = filter(None, [notice, _LOST_OUTPUT, await self.settle()])
            return RemoteRun("timeout", None, time.monotonic() - started, notice=" ".join(notices))
        wall_seconds = execution.wall_seconds or time.monotonic() - started
        files = await self._changed_files()
        self._last_used = time.monotonic()
        return RemoteRun("reported", execution, wall_seconds, files, notice)

    async def _prepare_if_expired(self) -> str:
        """Prepare the session again if the service has replaced it. Return a notice then."""
        if not self._is_prepared or time.monotonic() - self._last_used < self._waits.check:
            return ""
        if (await self._run_own(CHECK_MARK)).status == "succeeded":
            return ""
        self._is_prepared = False
        return _EXPIRED

    async def abandon(self, wall_seconds: float) -> RemoteRun:
        """Return the end of a run that was cancelled after it began, once it has ended."""
        return RemoteRun("cancelled", None, wall_seconds, notice=await self.settle())

    async def settle(self) -> str:
        """Wait until an abandoned run has ended; replace the session if it does not.

        Return a notice for the user, "" if the session continues with its variables.
        """
        try:
            async with asyncio.timeout(self._waits.settle):
                # The session runs one piece of code at a time, so the one before has ended.
                if (await self._run_own(ENTER_FOLDER)).status == "succeeded":
                    self._known_files = await self._list_files()
                    return ""
        except (ServiceError, TimeoutError) as error:
            _log.info("an abandoned run did not end: %s", type(error).__name__)
        await self._replace()
        return _REPLACED

    async def _replace(self) -> None:
        """Delete the session. The next run prepares one with another identifier."""
        old = self.client
        self._is_prepared = False
        self.client = self._make_client(str(uuid.uuid4()))
        await _delete(old)
        await old.close()

    async def remember(self, names: set[str]) -> None:
        """Do not report these files, which were uploaded, as changed by the next block."""
        files = await self._list_files()
        self._known_files |= {name: files[name] for name in names & files.keys()}

    async def close(self, *, delete: bool) -> None:
        """Close the connections, after deleting the session if `delete`."""
        if delete:
            await _delete(self.client)
        await self.client.close()

    async def _save_file(self, name: str, text: str) -> bool:
        """Save a block. Return False if its name leads out of the folder."""
        saved = await self._run_own(code_to_save_file(name, text))
        if saved.status != "succeeded":
            reason = _report(saved).rpartition("\n")[2]
            raise WorkspaceError(f"{name} cannot be saved in the session: {reason}")
        return OUTSIDE_WORKSPACE_TEXT not in saved.stdout

    async def _run_own(self, code: str) -> Execution:
        """Run Cellblock's own code, which may safely run twice."""
        return await self.client.execute(code, _SETUP_SECONDS, _RUN_TASK, is_repeatable=True)

    async def _changed_files(self) -> tuple[RemoteFile, ...]:
        """Return the files that differ from those of the last list."""
        known = self._known_files
        try:
            self._known_files = await self._list_files()
        except ServiceError as error:  # the result of the block matters more
            _log.warning("the files of a block are not known: %s", error)
            return ()
        return tuple(file for name, file in self._known_files.items() if known.get(name) != file)

    async def _list_files(self) -> dict[str, RemoteFile]:
        files = await self.client.list_files()
        return {file.name: file for file in files if not _is_hidden(file.name)}


async def _delete(client: SessionClient) -> None:
    """Delete a session. If that fails, it expires later."""
    try:
        async with asyncio.timeout(_DELETE_SECONDS):
            await client.delete_session()
    except (ServiceError, TimeoutError) as error:
        _log.info("a session was not deleted: %s", error)


def _is_hidden(name: str) -> bool:
    """Return True for files that no executor reports."""
    return any(part.startswith(".") or part in IGNORED_NAMES for part in name.split("/"))


def _report(execution: Execution) -> str:
    """Return what a run of Cellblock's own code says about its failure."""
    return (execution.stderr or execution.stdout).strip()[-2000:] or "no reason was given"
