"""A sandbox for agents of the OpenAI Agents SDK. Needs the extra `openai-agents`."""

# The SDK is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import io
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

from agents.sandbox import Manifest
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult

from ..box.base import Box
from ..box.sandbox import Sandbox
from ..errors import CellblockError
from .box_argument import attach_by_name, name_of, require_box
from .stopping import time_limit

ShellExecutor = Callable[[ShellCommandRequest], Coroutine[Any, Any, ShellResult]]


def shell_executor(sandbox: Box) -> ShellExecutor:
    """Return what runs the commands of a `ShellTool` in `sandbox`.

        from cellblock.integrations.openai_agents import shell_executor
        agent = Agent("coder", tools=[ShellTool(executor=shell_executor(sandbox))])

    Closing `sandbox` is left to its owner.
    """
    require_box(sandbox)

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        seconds = None if action.timeout_ms is None else action.timeout_ms / 1000
        outputs = []
        for command in action.commands:
            done = await sandbox.exec(command, timeout=time_limit(sandbox, seconds))
            outcome = (
                ShellCallOutcome("timeout")
                if done.timed_out
                else ShellCallOutcome("exit", done.exit_code)
            )
            outputs.append(ShellCommandOutput(done.stdout_text, done.stderr_text, outcome, command))
        return ShellResult(outputs, action.max_output_length)

    return execute


class CellblockSessionState(SandboxSessionState):
    """What is known of a session: `sandbox_id` names its sandbox."""

    type: Literal["cellblock"] = "cellblock"
    sandbox_id: str = ""


class CellblockClientOptions(BaseSandboxClientOptions):
    """No options: `CellblockSandboxClient(make)` makes the sandboxes."""

    type: Literal["cellblock"] = "cellblock"


class CellblockSandboxSession(BaseSandboxSession):
    """A sandbox, as the SDK uses one."""

    def __init__(self, state: CellblockSessionState, sandbox: Box) -> None:
        self.state, self.sandbox = state, sandbox

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of the SDK
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Run a command. Raise `ExecTimeoutError` at the time limit."""
        words = self._prepare_exec_command(*command, shell=shell, user=None)
        limit = time_limit(self.sandbox, timeout)
        return await self._exec(words, limit, user=_name(user))

    async def _exec_internal(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of the SDK
    ) -> ExecResult:
        return await self._exec([*map(str, command)], time_limit(self.sandbox, timeout))

    async def _exec(self, words: list[str], seconds: float | None, **options: Any) -> ExecResult:
        env = await self.state.manifest.environment.resolve()
        try:
            done = await self.sandbox.exec(words, timeout=seconds, env=env, **options)
        except PermissionError as error:
            return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=126)
        except (CellblockError, OSError, ValueError) as error:
            raise ExecTransportError(command=words, cause=error, message=str(error)) from error
        if done.timed_out:
            raise ExecTimeoutError(command=words, timeout_s=seconds)
        return ExecResult(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Return the contents of a file in the workspace."""
        inner = self.normalize_path(path)
        try:
            return io.BytesIO(await self.sandbox.files.read(str(inner), user=_name(user)))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except (CellblockError, OSError) as error:
            reason = {"reason": str(error)}
            raise WorkspaceArchiveReadError(path=path, cause=error, context=reason) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Replace or create a file in the workspace, and the folders above it."""
        inner = self.normalize_path(path, for_write=True)
        try:
            await self.sandbox.files.write(str(inner), data.read(), user=_name(user))
        except (CellblockError, OSError) as error:
            text = f"{path} was not written: {error}"
            raise WorkspaceArchiveWriteError(path=path, cause=error, message=text) from error

    async def running(self) -> bool:
        """Return True if the sandbox is open."""
        return not self.sandbox.closed

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar archive."""
        root = self.state.manifest.root
        left_out = shell_tar_exclude_args(self._persist_workspace_skip_relpaths())
        words = ["tar", "-C", root, *left_out, "-cf", "-", "."]
        done = await self._exec(words, None, max_output_bytes=None)  # no command of an agent
        if done.exit_code != 0:
            raise WorkspaceArchiveReadError(path=Path(root), context={"stderr": done.stderr})
        return io.BytesIO(done.stdout)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpack a tar archive into the workspace."""
        root = self.state.manifest.root
        done = await self._exec(["tar", "-C", root, "-xf", "-"], None, stdin=data.read())
        if done.exit_code != 0:
            raise WorkspaceArchiveWriteError(path=Path(root), context={"stderr": done.stderr})


class CellblockSandboxClient(BaseSandboxClient[CellblockClientOptions | None]):
    """Give each run of a `SandboxAgent` a sandbox of its own.

        from cellblock.integrations.openai_agents import CellblockSandboxClient
        RunConfig(sandbox=SandboxRunConfig(client=CellblockSandboxClient()))

    make   called for a new sandbox, such as `lambda: Sandbox(packages=["pandas"])`
    """

    backend_id = "cellblock"
    supports_default_options = True

    def __init__(self, make: Callable[[], Box] = lambda: Sandbox(timeout=None)) -> None:
        self._make = make
        self._open: dict[str, Box] = {}

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: CellblockClientOptions | None = None,
    ) -> SandboxSession:
        """Start a sandbox. The root of the manifest becomes its work folder."""
        sandbox = await self._start()
        state = CellblockSessionState(
            snapshot=resolve_snapshot(snapshot, sandbox.id),
            manifest=_in(sandbox, self._validate_manifest_for_create(manifest or Manifest())),
            sandbox_id=name_of(sandbox),
        )
        return self._wrap_session(CellblockSandboxSession(state, sandbox))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Go on in the sandbox of `state` if this client has it or it is kept, or in a new one."""
        if not isinstance(state, CellblockSessionState):
            raise TypeError(f"{state.type} sessions are not those of Cellblock.")
        state.assert_path_grants_rebound()
        sandbox = self._open.get(state.sandbox_id)
        if sandbox is None and (sandbox := await attach_by_name(state.sandbox_id)) is not None:
            self._open[state.sandbox_id] = sandbox
        is_kept = sandbox is not None and not sandbox.closed
        if sandbox is None or sandbox.closed:
            sandbox = await self._start()
            new = {"manifest": _in(sandbox, state.manifest), "sandbox_id": name_of(sandbox)}
            state = state.model_copy(update={**new, "workspace_root_ready": False})
        session = CellblockSandboxSession(state, sandbox)
        session._set_start_state_preserved(is_kept)
        return self._wrap_session(session)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Close the sandbox of a session."""
        if sandbox := self._open.pop(getattr(session.state, "sandbox_id", ""), None):
            await sandbox.close()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Return a state that was saved."""
        return self._deserialize_session_state_payload(payload, CellblockSessionState)

    async def _start(self) -> Box:
        sandbox = self._make()
        await sandbox.start()
        self._open[name_of(sandbox)] = sandbox
        return sandbox


def _name(user: str | User | None) -> str | None:
    return user if user is None or isinstance(user, str) else user.name


def _in(sandbox: Box, manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"root": sandbox.inner_work_dir}, deep=True)
