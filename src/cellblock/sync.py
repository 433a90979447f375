"""The synchronous interface: the same executors with plain calls instead of coroutines.

Each class wraps the asynchronous executor of the same name. The background loop runs the blocks.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
)

from .aio.background_loop import LoopEnded, background_loop
from .blocks import CodeBlockLike, MarkdownCodeExtractor
from .cancellation import Token
from .components import ComponentModel, SavedComponent
from .events import Event
from .executors.base import CodeExecutor
from .executors.command_line.docker import DockerCommandLineCodeExecutor as AsyncDockerCommandLine
from .executors.command_line.local import LocalCommandLineCodeExecutor as AsyncLocalCommandLine
from .executors.command_line.sandbox import (
    SandboxCommandLineCodeExecutor as AsyncSandboxCommandLine,
)
from .executors.jupyter.docker import DockerJupyterCodeExecutor as AsyncDockerJupyter
from .executors.jupyter.local import JupyterCodeExecutor as AsyncJupyter
from .executors.jupyter.remote import JupyterServerCodeExecutor as AsyncJupyterServer
from .executors.remote.azure import AzureContainerCodeExecutor as AsyncAzureContainer
from .executors.session.base import SessionExecutor, Variable
from .executors.session.checkpoint import Checkpoint
from .executors.session.docker import DockerSessionCodeExecutor as AsyncDockerSession
from .executors.session.sandbox import SandboxSessionCodeExecutor as AsyncSandboxSession
from .executors.session.sandbox_server import SandboxSessionServer as AsyncSandboxSessionServer
from .results import CodeResult, CommandLineCodeResult, JupyterCodeResult, SessionCodeResult

__all__ = [
    "ACADynamicSessionsCodeExecutor",
    "AzureContainerCodeExecutor",
    "DockerCommandLineCodeExecutor",
    "DockerJupyterCodeExecutor",
    "DockerSessionCodeExecutor",
    "JupyterCodeExecutor",
    "JupyterServerCodeExecutor",
    "LocalCommandLineCodeExecutor",
    "SandboxCommandLineCodeExecutor",
    "SandboxSessionCodeExecutor",
    "SandboxSessionServer",
]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _with_parameters_of(
    wrapped: Callable[_P, object],
) -> Callable[[Callable[..., _R]], Callable[Concatenate[Any, _P], _R]]:
    """Give a method the parameters of the class `wrapped`, for checkers, editors and `help`."""

    def decorate(method: Callable[..., _R]) -> Callable[Concatenate[Any, _P], _R]:
        own = inspect.signature(method)
        parameters = [own.parameters["self"], *inspect.signature(wrapped).parameters.values()]
        vars(method)["__signature__"] = own.replace(parameters=parameters)
        return method

    return decorate


class SyncCodeExecutor:
    """Offer the methods of `CodeExecutor` without `await`. Delegate all other attributes to it."""

    _async_class: ClassVar[type[CodeExecutor]]

    def __init__(self, *args: Any, **options: Any) -> None:
        self._executor = type(self)._async_class(*args, **options)

    def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> CodeResult:
        """Run `code_blocks` and return their result. See `CodeExecutor.execute_code_blocks`.

        An interrupt (Ctrl-C) kills the block. After its cleanup, `KeyboardInterrupt` propagates.
        """
        return background_loop().run(
            self._executor.execute_code_blocks(code_blocks, cancellation_token)
        )

    def execute_stream(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> Generator[Event]:
        """Run `code_blocks` and yield events as they happen. See `CodeExecutor.execute_stream`."""
        return background_loop().iterate(
            self._executor.execute_stream(code_blocks, cancellation_token)
        )

    def start(self) -> None:
        """Start the executor. Do nothing if it is already started."""
        background_loop().run(self._executor.start())

    def stop(self) -> None:
        """Kill what runs and clean up. See `CodeExecutor.stop`."""
        with contextlib.suppress(LoopEnded):
            background_loop().run(self._executor.stop())

    def restart(self) -> None:
        """Stop and start again. Only the files in the work folder are kept."""
        background_loop().run(self._executor.restart())

    def dump_component(self) -> ComponentModel:
        """Return the executor's configuration."""
        return self._executor.dump_component()

    @classmethod
    def load_component(cls, model: SavedComponent, expected: type[Any] | None = None) -> Self:
        """Create an executor from a saved configuration. See `Component.load_component`."""
        wrapper = cls.__new__(cls)
        wrapper._executor = cls._async_class.load_component(model, expected)
        return wrapper

    @property
    def code_extractor(self) -> MarkdownCodeExtractor:
        """The extractor that finds the code blocks in a message."""
        return MarkdownCodeExtractor()

    def __repr__(self) -> str:
        return repr(self._executor)

    def __reduce__(self) -> NoReturn:
        self._executor.__reduce__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._executor, name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            background_loop().run(self._executor.__aexit__(kind, error, trace))


class _SyncCommandLine(SyncCodeExecutor):
    """Results are `CommandLineCodeResult` objects."""

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> CommandLineCodeResult: ...


class _SyncKernel(SyncCodeExecutor):
    """Results are `JupyterCodeResult` objects."""

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> JupyterCodeResult: ...


class AzureContainerCodeExecutor(SyncCodeExecutor):
    """`cellblock.AzureContainerCodeExecutor`, without `await`."""

    _async_class = AsyncAzureContainer
    _executor: AsyncAzureContainer

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> SessionCodeResult: ...

    @_with_parameters_of(AsyncAzureContainer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)

    def get_file_list(self, cancellation_token: Token | None = None) -> list[str]:
        """Return the names of the files in the session."""
        return background_loop().run(self._executor.get_file_list(cancellation_token))

    def get_available_packages(self, cancellation_token: Token | None = None) -> set[str]:
        """Return the names of the Python packages in the session."""
        return background_loop().run(self._executor.get_available_packages(cancellation_token))

    def upload_files(
        self, files: Sequence[str | os.PathLike[str]], cancellation_token: Token | None = None
    ) -> None:
        """Send files to the session. See `AzureContainerCodeExecutor.upload_files`."""
        background_loop().run(self._executor.upload_files(files, cancellation_token))

    def download_files(
        self, files: Sequence[str | os.PathLike[str]], cancellation_token: Token | None = None
    ) -> list[str]:
        """Fetch files from the session into `work_dir`, and return their local paths."""
        return background_loop().run(self._executor.download_files(files, cancellation_token))


ACADynamicSessionsCodeExecutor = AzureContainerCodeExecutor  # its name in AutoGen 0.7


class DockerCommandLineCodeExecutor(_SyncCommandLine):
    """`cellblock.DockerCommandLineCodeExecutor`, without `await`."""

    _async_class = AsyncDockerCommandLine

    @_with_parameters_of(AsyncDockerCommandLine)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class DockerJupyterCodeExecutor(_SyncKernel):
    """`cellblock.DockerJupyterCodeExecutor`, without `await`."""

    _async_class = AsyncDockerJupyter

    @_with_parameters_of(AsyncDockerJupyter)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class JupyterCodeExecutor(_SyncKernel):
    """`cellblock.JupyterCodeExecutor`, without `await`."""

    _async_class = AsyncJupyter

    @_with_parameters_of(AsyncJupyter)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class JupyterServerCodeExecutor(_SyncKernel):
    """`cellblock.JupyterServerCodeExecutor`, without `await`."""

    _async_class = AsyncJupyterServer

    @_with_parameters_of(AsyncJupyterServer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class SandboxSessionServer(AsyncSandboxSessionServer):
    """`cellblock.SandboxSessionServer` for ``with``. Pass it as `server` to a session.

    `session` makes a `SandboxSessionCodeExecutor` on it.
    """

    @_with_parameters_of(AsyncSandboxSession)
    def session(self, *args: Any, **options: Any) -> SandboxSessionCodeExecutor:
        """Make a session on this server. See `SandboxSessionCodeExecutor` for the parameters."""
        return SandboxSessionCodeExecutor(*args, **{"server": self, **options})

    def __enter__(self) -> Self:
        background_loop().run(self.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            background_loop().run(self.__aexit__(kind, error, trace))


class _SyncSession(SyncCodeExecutor):
    """Offer the additional methods of live sessions without `await`."""

    _executor: SessionExecutor

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> SessionCodeResult: ...

    def get(self, name: str) -> Any:
        """Return the value of a variable."""
        return background_loop().run(self._executor.get(name))

    def set(self, name: str, value: Any) -> None:
        """Set a variable."""
        background_loop().run(self._executor.set(name, value))

    def variables(self) -> list[Variable]:
        """List the variables that blocks have created."""
        return background_loop().run(self._executor.variables())

    def complete(self, code: str, cursor: int | None = None) -> tuple[int, list[str]]:
        """Return what Tab offers. See `SessionExecutor.complete`."""
        return background_loop().run(self._executor.complete(code, cursor))

    def checkpoint(
        self,
        name: str | None = None,
        *,
        lifetime_seconds: float | None = None,
        replace: bool = False,
        max_copied_bytes: int | None = None,
    ) -> Checkpoint:
        """Create a frozen copy of the session's memory and work folder."""
        return background_loop().run(
            self._executor.checkpoint(
                name,
                lifetime_seconds=lifetime_seconds,
                replace=replace,
                max_copied_bytes=max_copied_bytes,
            )
        )

    def restore(self, checkpoint: Checkpoint | str) -> None:
        """Restore the session to a checkpoint."""
        background_loop().run(self._executor.restore(checkpoint))

    def drop(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint."""
        background_loop().run(self._executor.drop(checkpoint))

    def fork(
        self,
        count: int = 1,
        *,
        checkpoint: Checkpoint | str | None = None,
        max_copied_bytes: int | None = None,
    ) -> list[Self]:
        """Create `count` independent sessions that start from the current state or a checkpoint."""
        forking = self._executor.fork(
            count, checkpoint=checkpoint, max_copied_bytes=max_copied_bytes
        )
        return [self._wrap(branch) for branch in background_loop().run(forking)]

    @classmethod
    def _wrap(cls, executor: SessionExecutor) -> Self:
        wrapper = cls.__new__(cls)
        wrapper._executor = executor
        return wrapper


class SandboxSessionCodeExecutor(_SyncSession):
    """`cellblock.SandboxSessionCodeExecutor`, without `await`."""

    _async_class = AsyncSandboxSession

    @_with_parameters_of(AsyncSandboxSession)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class DockerSessionCodeExecutor(_SyncSession):
    """`cellblock.DockerSessionCodeExecutor`, without `await`."""

    _async_class = AsyncDockerSession

    @_with_parameters_of(AsyncDockerSession)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class LocalCommandLineCodeExecutor(_SyncCommandLine):
    """`cellblock.LocalCommandLineCodeExecutor`, without `await`."""

    _async_class = AsyncLocalCommandLine

    @_with_parameters_of(AsyncLocalCommandLine)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class SandboxCommandLineCodeExecutor(_SyncCommandLine):
    """`cellblock.SandboxCommandLineCodeExecutor`, without `await`."""

    _async_class = AsyncSandboxCommandLine

    @_with_parameters_of(AsyncSandboxCommandLine)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
