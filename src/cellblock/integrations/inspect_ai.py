"""CellblockEnvironment: a sandbox for each sample of Inspect. Needs the extra `inspect-ai`."""

# Inspect is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import field_validator

from ..box.base import Box
from ..box.docker import DockerSandbox
from ..errors import BackendError, BackendLost, UserUnsupported
from .box_argument import BoxConfig
from .stopping import time_limit


class CellblockConfig(BoxConfig, frozen=True):
    """What a task wants: `sandbox=SandboxEnvironmentSpec("cellblock", CellblockConfig(...))`.

    image       that of a container; None for a sandbox of this machine
    root        the root file system of a sandbox of this machine, as `cellblock.Sandbox` takes it
    packages    what the Python of the sandbox can import
    users       a sandbox of this machine has root and other users, if this machine allows it
    sandboxes   further sandboxes of a sample, by name

    All other parameters of `Sandbox`, or of `DockerSandbox`, can be given too. There is no time
    limit by default: Inspect has limits of its own.
    """

    not_of_box = frozenset({"sandboxes"})
    defaults = MappingProxyType({"timeout": None, "users": True})

    image: str | None = None
    root: str | None = None
    packages: tuple[str, ...] = ()
    users: bool = True
    sandboxes: dict[str, CellblockConfig] = {}

    @field_validator("sandboxes")
    @classmethod
    def _check_names(cls, named: dict[str, CellblockConfig]) -> dict[str, CellblockConfig]:
        if "default" in named:
            raise ValueError("The sandbox `default` is what the other fields say.")
        if inner := [name for name, config in named.items() if config.sandboxes]:
            raise ValueError(f"The sandbox {inner[0]!r} cannot have sandboxes of its own.")
        return named


@sandboxenv(name="cellblock")
class CellblockEnvironment(SandboxEnvironment):
    """The sandbox of a sample: `Task(..., sandbox="cellblock")`."""

    def __init__(self, sandbox: Box) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    def config_deserialize(cls, config: dict[str, object]) -> CellblockConfig:
        """Return the configuration that a log has."""
        return CellblockConfig.model_validate(config)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        """Start the sandboxes of a sample."""
        if not isinstance(config, CellblockConfig | None):
            raise ValueError(f"config must be a CellblockConfig, not {config!r:.100}.")
        default = config or CellblockConfig()
        async with AsyncExitStack() as stack:
            boxes = {}
            for name, each in {"default": default, **default.sandboxes}.items():
                boxes[name] = each.make_box()
                stack.push_async_callback(boxes[name].close)
                await boxes[name].start()
            stack.pop_all()
        return {name: cls(box) for name, box in boxes.items()}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Close the sandboxes of a sample."""
        async with AsyncExitStack() as stack:
            for environment in environments.values():
                stack.push_async_callback(environment.as_type(cls).sandbox.close)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command, once. Raise what `SandboxEnvironment.exec` names."""
        limit = SandboxEnvironmentLimits
        with _errors_of_inspect():
            done = await self.sandbox.exec(
                cmd,
                stdin=input,
                cwd=cwd,
                env=env,
                user=user,
                timeout=time_limit(self.sandbox, timeout),
                max_output_bytes=limit.MAX_EXEC_OUTPUT_SIZE,
            )
        if done.timed_out:
            raise TimeoutError(f"The command reached its time limit of {timeout} seconds.")
        if done.truncated:
            output = done.stdout_text + done.stderr_text
            raise OutputLimitExceededError(limit.MAX_EXEC_OUTPUT_SIZE_STR, output)
        success = done.exit_code == 0
        return ExecResult(success, done.exit_code, done.stdout_text, done.stderr_text)

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Return the command that opens a shell in the sandbox, which must be `kept`."""
        if self.sandbox.closed:
            raise ConnectionError("The sandbox was closed.")
        if isinstance(self.sandbox, DockerSandbox):
            name = self.sandbox.container
            words = ["docker", "exec", "-it", *(["--user", user] if user else []), name, "bash"]
            return SandboxConnection(type="docker", command=shlex.join(words), container=name)
        try:
            ref = self.sandbox.ref()
        except BackendError as error:
            raise NotImplementedError("It needs CellblockConfig(kept=True).") from error
        words = [sys.executable, "-m", "cellblock", "shell", ref]
        words += ["--user", user] if user else []
        return SandboxConnection(type="cellblock", command=shlex.join(words))

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and make the folders above it."""
        with _errors_of_inspect():
            await self.sandbox.files.write(file, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Return what is in a file, as bytes or as a text in UTF-8."""
        limit = SandboxEnvironmentLimits
        with _errors_of_inspect():
            try:
                data = await self.sandbox.files.read(file, limit_bytes=limit.MAX_READ_FILE_SIZE)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                raise OutputLimitExceededError(limit.MAX_READ_FILE_SIZE_STR, None) from error
        return data.decode() if text else data


@contextmanager
def _errors_of_inspect() -> Iterator[None]:
    try:
        yield
    except UserUnsupported as error:
        raise SandboxUserUnsupportedError(str(error)) from error
    except BackendLost as error:
        raise SandboxUnavailableError(str(error)) from error
