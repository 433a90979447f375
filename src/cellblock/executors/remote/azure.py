"""AzureContainerCodeExecutor: run blocks in a dynamic session of Azure Container Apps."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ...blocks import CodeBlock, CodeBlockLike, action_for_block, file_name
from ...cancellation import Token
from ...errors import BackendError, ExecutorStopped
from ...events import Display, Ended, Event, FileCreated, Output, Started, Usage
from ...functions.module import Function, FunctionModule
from ...languages import find_language
from ...limits import LOCAL_LIMITS, Limits
from ...results import ResultBuilder, SessionCodeResult
from ...source_text import source_to_run, with_named_program
from ..argument_checks import check_bool, check_timeout, shortest
from ..base import unknown_language
from ..displays import DisplayFiles, save_display
from ..frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED, EXIT_TIMEOUT, TIMEOUT_TEXT
from ..jupyter.output_limit import TextOutputLimit
from ..settings import BlockProperties, BlockSettings, Config, to_config
from ..workspace.workspace import OUTSIDE_WORKSPACE_TEXT
from .access_token import AccessToken, Credential
from .arguments import (
    check_credential,
    check_endpoint,
    check_enforced_limits,
    check_session_id,
    path_in_session,
)
from .block_events import as_shell_run, output_events, run_end
from .cancellable_work import wait_for_end
from .dialects import FILES_FOLDER, dialect_for
from .session_code import code_to_run_shell
from .session_files import SessionFilesExecutor

if TYPE_CHECKING:
    from .remote_session import RemoteRun, RemoteSession
    from .session_client import SessionClient

_MISSING = (
    "Azure dynamic sessions need aiohttp, which is not installed: pip install 'cellblock[azure]'."
)
# How the notice begins that the variables are as they were: it is not repeated in the output.
_RESTORED = "The session was restored: its variables are as they were before this block"
_LANGUAGES = ("python", "sh", "bash")
_STOPPED_MESSAGE = "The executor was stopped."


@dataclass(frozen=True, kw_only=True)
class AzureSettings(BlockSettings):
    """See `AzureContainerCodeExecutor`."""

    pool_management_endpoint: str
    credential: Credential | str | None = field(repr=False)
    work_dir: Path | None
    suppress_result_output: bool
    session_id: str | None
    api_version: str | None


class AzureContainerCodeExecutor(BlockProperties[AzureSettings], SessionFilesExecutor):
    """Run blocks in a dynamic session of Azure Container Apps, or of `cellblock serve`.

    pool_management_endpoint   URL of the session pool
    credential                 object with `get_token`, synchronous or not, as in `azure.identity`;
                               a string: the token itself, such as a key of `cellblock keys add`;
                               None: `DefaultAzureCredential`
    timeout                    seconds that one block may run, at least 1; the service counts whole
                               seconds. None: as long as the service allows
    work_dir                   local folder: files are uploaded from it and downloaded to it, and
                               pictures saved in it; None: a temporary folder, which `stop` removes
    functions                  functions that blocks can call, and import from `functions_module`
    suppress_result_output     leave out the value of a block's last expression
    session_id                 identifier of a session to use; `stop` does not delete that one
    limits                     `wall_seconds` and `output_bytes` apply to each block
    api_version                None: the first dialect that the endpoint speaks

    Blocks are Python, or sh and bash, which run as child processes of the session. They run in its
    folder /mnt/data, which is not `work_dir`. `restart` begins a
    new session without files. The service reports the output of a block at its end, standard output
    and standard error apart. A block that is cancelled leaves no output. If it does not end then,
    the session is replaced by a new one, and `notice` of the result says so. Concurrent calls wait
    for each other. Every method raises `ServiceError` if the service fails.
    """

    SUPPORTED_LANGUAGES: ClassVar[list[str]] = [*_LANGUAGES]
    is_live: ClassVar[bool] = True

    if TYPE_CHECKING:

        async def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> SessionCodeResult: ...

    def __init__(
        self,
        pool_management_endpoint: str,
        credential: Credential | str | None = None,
        timeout: float | None = 60,
        work_dir: str | os.PathLike[str] | None = None,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        suppress_result_output: bool = False,
        session_id: str | None = None,
        *,
        limits: Limits = LOCAL_LIMITS,
        api_version: str | None = None,
    ) -> None:
        super().__init__(work_dir)
        self._settings = AzureSettings(
            pool_management_endpoint=check_endpoint(pool_management_endpoint),
            credential=check_credential(credential),
            timeout=check_timeout(timeout),
            work_dir=self._given_work_dir,
            functions=FunctionModule(functions, functions_module),
            suppress_result_output=check_bool("suppress_result_output", suppress_result_output),
            session_id=check_session_id(session_id),
            limits=check_enforced_limits(limits),
            api_version=api_version,
        )
        if api_version is not None:
            dialect_for(api_version)
        self._token = AccessToken(self._settings.credential)
        self._session_id = self._settings.session_id or str(uuid.uuid4())
        self._session: RemoteSession | None = None
        self._runs: set[asyncio.Task[RemoteRun]] = set()
        # The service would queue or refuse a second run.
        self._run_lock = asyncio.Lock()

    @property
    def session_id(self) -> str:
        """The identifier of the session."""
        session = self._session
        return self._session_id if session is None else session.client.identifier

    def _repr_details(self) -> list[str]:
        return [
            self._settings.pool_management_endpoint,
            f"session_id={self.session_id!r}",
            f"timeout={self.timeout}",
        ]

    # implementation of CodeExecutor

    async def _open(self) -> None:
        self._create_work_dir()
        session = self._new_session()
        try:
            await session.prepare()
        except BaseException:
            await session.close(delete=self._is_own(session))
            raise
        self._session = session

    def _new_session(self) -> RemoteSession:
        try:
            # Imported here because they need an extra.
            from .remote_session import RemoteSession
            from .session_client import SessionClient
        except ImportError as error:
            raise BackendError(_MISSING) from error

        def make_client(identifier: str) -> SessionClient:
            return SessionClient(
                self._settings.pool_management_endpoint,
                identifier,
                self._token,
                self._settings.api_version,
            )

        return RemoteSession(make_client, self._session_id, self._settings.functions)

    def _is_own(self, session: RemoteSession) -> bool:
        return session.client.identifier != self._settings.session_id

    async def _close(self, *, restarting: bool) -> None:
        session, self._session = self._session, None
        runs = list(self._runs)
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs)
        if session is not None:
            await session.close(delete=self._is_own(session))
        given = None if restarting else self._settings.session_id
        self._session_id = given or str(uuid.uuid4())
        if not restarting:
            await self._remove_temp_dir()

    async def _open_session(self) -> RemoteSession:
        if self.must_start():
            await self._start_for_use()
        return self._live_session()

    def _live_session(self) -> RemoteSession:
        if self._session is None:
            raise ExecutorStopped(_STOPPED_MESSAGE)
        return self._session

    async def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        if (refusal := _refusal(number, block)) is not None:
            yield Started(number, block.language)
            yield refusal
            return
        own_name = file_name(block.code)
        path = None if own_name is None else path_in_session(own_name)
        yield Started(number, block.language, None if path is None else f"{FILES_FOLDER}/{path}")
        requested, queued = time.monotonic(), list[float]()
        run = asyncio.create_task(self._run_in_turn(block, path, requested, queued))
        self._runs.add(run)
        try:
            await wait_for_end(run, token)
        finally:
            self._runs.discard(run)
        self._live_session()
        if run.cancelled():
            yield Ended(number, EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT)
            return
        for event in self._events_of(number, _with_exit_code(block, run.result()), path, queued):
            yield event

    async def _run_in_turn(
        self, block: CodeBlock, path: str | None, requested: float, queued: list[float]
    ) -> RemoteRun:
        """Run a block after those before it. If this task is cancelled, end the block."""
        async with self._run_lock:
            queued.append(time.monotonic() - requested)
            session, started = self._live_session(), time.monotonic()
            seconds = shortest(self.timeout, self.limits.wall_seconds)
            try:
                return await session.run(_source(block), _code_to_run(block), path, seconds)
            except asyncio.CancelledError:
                if self._session is not session:  # the executor is being stopped
                    raise
                return await session.abandon(time.monotonic() - started)

    def _events_of(
        self, number: int, run: RemoteRun, path: str | None, queued: list[float]
    ) -> Iterator[Event]:
        """Yield what a block did, except its start."""
        usage = Usage(run.wall_seconds, queue_seconds=sum(queued))
        if run.execution is None:
            yield _end_without_report(number, run, usage)
            return
        seconds = shortest(self.timeout, self.limits.wall_seconds)
        end = run_end(run.execution, run.wall_seconds, seconds)
        limit = TextOutputLimit(number, self.limits.output_bytes)
        with_result = not self._settings.suppress_result_output
        for event in output_events(number, run.execution, end, with_result=with_result):
            match event:
                case Output():
                    yield from limit.add(event)
                case Display():
                    yield from save_display(DisplayFiles(self.work_dir.absolute()), event)
                case _:
                    yield event
        yield from limit.finish()
        for file in run.files:
            if file.name != path:
                yield FileCreated(number, file.name, file.size_bytes)
        yield Ended(
            number,
            end.exit_code,
            end.outcome,
            end.limit,
            end.message,
            usage,
            session_restored=end.notice.startswith(_RESTORED),
            notice=" ".join(filter(None, [run.notice, end.notice])),
        )

    def _build_result(self, builder: ResultBuilder) -> SessionCodeResult:
        return builder.session_result()

    def _to_config(self) -> Config:
        return to_config(self._settings)


ACADynamicSessionsCodeExecutor = AzureContainerCodeExecutor  # its name in AutoGen 0.7


def _refusal(number: int, block: CodeBlock) -> Ended | None:
    """Return the end of a block that is not run; None if it is run."""
    language = find_language(block.language)
    if language is None or language.name not in _LANGUAGES:
        if language is not None and action_for_block(block, language) == "ignore":
            return Ended(number, 0, "ok")
        return unknown_language(number, block)
    own_name = file_name(block.code)
    if own_name is not None and path_in_session(own_name) is None:
        return Ended(number, 1, "error", message=OUTSIDE_WORKSPACE_TEXT)
    return None


def _source(block: CodeBlock) -> str:
    return source_to_run(block.code.encode(errors="replace").decode(), block.language)


def _code_to_run(block: CodeBlock) -> str:
    """Return the Python code that runs a block, whose language is known."""
    code, language = _source(block), find_language(block.language)
    assert language is not None
    if language.name == "python":
        return code
    return code_to_run_shell(with_named_program(language, code).argv or (), code)


def _with_exit_code(block: CodeBlock, run: RemoteRun) -> RemoteRun:
    """Return the run of a shell block with the exit code of the shell."""
    language = find_language(block.language)
    if run.execution is None or language is None or language.name == "python":
        return run
    return replace(run, execution=as_shell_run(run.execution))


def _end_without_report(number: int, run: RemoteRun, usage: Usage) -> Ended:
    """Return the end of a block whose end the service has not reported."""
    if run.end == "timeout":
        return Ended(
            number, EXIT_TIMEOUT, "timeout", "wall_seconds", TIMEOUT_TEXT, usage, notice=run.notice
        )
    if run.end == "refused":
        return Ended(number, 1, "error", None, OUTSIDE_WORKSPACE_TEXT, usage, notice=run.notice)
    return Ended(
        number, EXIT_CANCELLED, "cancelled", None, CANCELLED_TEXT, usage, notice=run.notice
    )
