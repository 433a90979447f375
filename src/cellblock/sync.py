"""The synchronous face: the executors under their own names, with plain calls in the place of coroutines.

One thin facade; the work is done by the executors themselves, on the engine's loop, or right here where hardly anybody else
uses them just now.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from .aio.background_loop import engine
from .aio.inline_loop import can_drive, drive
from .blocks import Block, MarkdownCodeExtractor
from .cancellation import Token
from .components import ComponentModel, Saved
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
from .executors.session.checkpoint import Checkpoint
from .executors.session.checkpointing import CopiedSession, Variable
from .executors.session.docker import DockerSessionCodeExecutor as AsyncDockerSession
from .executors.session.sandbox import SandboxSessionCodeExecutor as AsyncSandboxSession
from .executors.session.sandbox_server import SandboxSessionServer as AsyncSandboxSessionServer
from .results import CodeResult

__all__ = [
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


class SyncCodeExecutor:
    """The calls of `CodeExecutor`, without `await`. Everything else is passed on to the executor itself."""

    _kind: ClassVar[Callable[..., CodeExecutor]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._executor = type(self)._kind(*args, **kwargs)

    def execute_code_blocks(
        self, code_blocks: Sequence[Block], cancellation_token: Token | None = None
    ) -> CodeResult:
        """Run `code_blocks` and give their result; see `CodeExecutor.execute_code_blocks`.

        An interrupt (Ctrl-C) ends the block, waits for its clean-up and goes on up.
        """
        if self._executor.is_at_hand() and can_drive():
            return drive(self._executor.execute_code_blocks, code_blocks, cancellation_token)
        return engine().wait(self._executor.execute_code_blocks(code_blocks, cancellation_token))

    def execute_stream(
        self, code_blocks: Sequence[Block], cancellation_token: Token | None = None
    ) -> Generator[Event]:
        """Run `code_blocks` and give what happens as it happens."""
        return engine().iterate(self._executor.execute_stream(code_blocks, cancellation_token))

    def start(self) -> None:
        """Get ready. Does nothing when that has been done."""
        engine().wait(self._executor.start())

    def stop(self) -> None:
        """End what runs, and clean up."""
        engine().wait(self._executor.stop())

    def restart(self) -> None:
        """Stop and start."""
        engine().wait(self._executor.restart())

    def dump_component(self) -> ComponentModel:
        """Give the executor's configuration."""
        return self._executor.dump_component()

    @classmethod
    def load_component(cls, model: Saved, expected: type[Any] | None = None) -> Self:
        """Make an executor from a saved configuration; see `Component.load_component`."""
        face = cls.__new__(cls)
        face._executor = cls._kind.load_component(model, expected)  # pyright: ignore[reportFunctionMemberAccess] - a class
        return face

    @property
    def code_extractor(self) -> MarkdownCodeExtractor:
        """What takes the blocks out of a message."""
        return MarkdownCodeExtractor()

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
        self.stop()


class DockerCommandLineCodeExecutor(SyncCodeExecutor):
    """`cellblock.DockerCommandLineCodeExecutor`, without `await`."""

    _kind = AsyncDockerCommandLine


class DockerJupyterCodeExecutor(SyncCodeExecutor):
    """`cellblock.DockerJupyterCodeExecutor`, without `await`."""

    _kind = AsyncDockerJupyter


class JupyterCodeExecutor(SyncCodeExecutor):
    """`cellblock.JupyterCodeExecutor`, without `await`."""

    _kind = AsyncJupyter


class JupyterServerCodeExecutor(SyncCodeExecutor):
    """`cellblock.JupyterServerCodeExecutor`, without `await`."""

    _kind = AsyncJupyterServer


class SandboxSessionServer:
    """`cellblock.SandboxSessionServer`, for ``with``; its `session` makes executors of this face."""

    def __init__(self, **options: Any) -> None:
        self._server = AsyncSandboxSessionServer(**options)

    def session(self, *args: Any, **options: Any) -> SandboxSessionCodeExecutor:
        """Make a session of this server; it takes what `SandboxSessionCodeExecutor` takes."""
        return SandboxSessionCodeExecutor(*args, server=self._server, **options)

    def __enter__(self) -> Self:
        engine().wait(self._server.warm.open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        engine().wait(self._server.warm.close())


class _SyncSession(SyncCodeExecutor):
    """What live sessions have beyond, without `await`."""

    _executor: CopiedSession

    def get(self, name: str) -> Any:
        """Give the value of a variable."""
        return engine().wait(self._executor.get(name))

    def set(self, name: str, value: Any) -> None:
        """Set a variable."""
        engine().wait(self._executor.set(name, value))

    def variables(self) -> list[Variable]:
        """List the variables that blocks have made."""
        return engine().wait(self._executor.variables())

    def checkpoint(self, *, lifetime_seconds: float | None = None) -> Checkpoint:
        """Make a frozen copy of memory and work folder."""
        return engine().wait(self._executor.checkpoint(lifetime_seconds=lifetime_seconds))

    def restore(self, mark: Checkpoint) -> None:
        """Go back to a checkpoint."""
        engine().wait(self._executor.restore(mark))

    def drop(self, mark: Checkpoint) -> None:
        """Forget a checkpoint."""
        engine().wait(self._executor.drop(mark))

    def fork(self, count: int = 1, *, mark: Checkpoint | None = None) -> list[Self]:
        """Make independent sessions that start from here, or from a checkpoint."""
        return [
            self._face(branch) for branch in engine().wait(self._executor.fork(count, mark=mark))
        ]

    @classmethod
    def _face(cls, executor: CopiedSession) -> Self:
        face = cls.__new__(cls)
        face._executor = executor
        return face


class SandboxSessionCodeExecutor(_SyncSession):
    """`cellblock.SandboxSessionCodeExecutor`, without `await`."""

    _kind = AsyncSandboxSession


class DockerSessionCodeExecutor(_SyncSession):
    """`cellblock.DockerSessionCodeExecutor`, without `await`."""

    _kind = AsyncDockerSession


class LocalCommandLineCodeExecutor(SyncCodeExecutor):
    """`cellblock.LocalCommandLineCodeExecutor`, without `await`."""

    _kind = AsyncLocalCommandLine


class SandboxCommandLineCodeExecutor(SyncCodeExecutor):
    """`cellblock.SandboxCommandLineCodeExecutor`, without `await`."""

    _kind = AsyncSandboxCommandLine
