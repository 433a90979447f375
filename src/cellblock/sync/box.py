"""The boxes, without `await`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from ..aio.background_loop import LoopEnded, background_loop
from ..box.arguments import check_output_callback
from ..box.base import Box as AsyncBox
from ..box.docker import DockerSandbox as AsyncDockerSandbox
from ..box.files import Files as AsyncFiles
from ..box.output import Piece
from ..box.process import Process as AsyncProcess
from ..box.results import CommandResult
from ..box.sandbox import Sandbox as AsyncSandbox
from ..box.shell import ShellProgram
from ..box.shell import ShellSession as AsyncShellSession
from ..executors.session.checkpoint import Checkpoint
from ..executors.session.settings import InputCallback
from ..sandbox.guarantees import Guarantee
from .base import SyncSession, with_parameters_of

P = ParamSpec("P")
R = TypeVar("R")


def plain(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the asynchronous `method` of what an object wraps, as a plain one."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return background_loop().run(method(self.wrapped, *args, **kwargs))

    return call


def plain_stream(
    method: Callable[Concatenate[Any, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Any, P], Generator[R]]:
    """Return the asynchronous generator `method` of what an object wraps, as a plain one."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> Generator[R]:
        return background_loop().iterate(method(self.wrapped, *args, **kwargs))

    return call


def plain_command(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, CommandResult]],
    stream: Callable[..., AsyncGenerator[Piece | CommandResult, None]],
) -> Callable[Concatenate[Any, P], CommandResult]:
    """Return `method` as a plain one, which calls `on_output` in the thread of its caller."""
    run = plain(method)

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> CommandResult:
        on_output: object = kwargs.get("on_output")
        check_output_callback(on_output)
        if not callable(on_output):
            return run(self, *args, **kwargs)
        options = {name: value for name, value in kwargs.items() if name != "on_output"}
        pieces = background_loop().iterate(stream(self.wrapped, *args, **options))
        with contextlib.closing(pieces):
            for piece in pieces:
                if isinstance(piece, CommandResult):
                    return piece
                on_output(*piece)
        raise AssertionError("a command without a result")

    return call


class Files:
    """`cellblock.box.files.Files`, without `await`."""

    def __init__(self, wrapped: AsyncFiles) -> None:
        self.wrapped = wrapped

    read = plain(AsyncFiles.read)
    read_text = plain(AsyncFiles.read_text)
    write = plain(AsyncFiles.write)
    list = plain(AsyncFiles.list)
    stat = plain(AsyncFiles.stat)
    exists = plain(AsyncFiles.exists)
    make_dir = plain(AsyncFiles.make_dir)
    remove = plain(AsyncFiles.remove)
    resolve = plain(AsyncFiles.resolve)
    upload = plain(AsyncFiles.upload)
    download = plain(AsyncFiles.download)


class Process:
    """`cellblock.box.process.Process`, without `await`."""

    def __init__(self, wrapped: AsyncProcess) -> None:
        self.wrapped, self.pid = wrapped, wrapped.pid

    send = plain(AsyncProcess.send)
    close_stdin = plain(AsyncProcess.close_stdin)
    kill = plain(AsyncProcess.kill)
    wait = plain(AsyncProcess.wait)

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self.wrapped.poll()

    def __iter__(self) -> Iterator[Piece]:
        return background_loop().iterate(aiter(self.wrapped))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            background_loop().run(self.wrapped.__aexit__(kind, error, trace))


class ShellSession:
    """`cellblock.box.shell.ShellSession`, without `await`."""

    def __init__(self, wrapped: AsyncShellSession) -> None:
        self.wrapped = wrapped

    run = plain_command(AsyncShellSession.run, AsyncShellSession.run_stream)
    run_stream = plain_stream(AsyncShellSession.run_stream)
    restart = plain(AsyncShellSession.restart)
    close = plain(AsyncShellSession.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            self.close()


def plain_process(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncProcess]],
) -> Callable[Concatenate[Any, P], Process]:
    """Return a plain method that starts a process as `method` does."""
    run = plain(method)

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> Process:
        return Process(run(self, *args, **kwargs))

    return call


class Box:
    """Offer the methods of `cellblock.box.base.Box` without `await`."""

    _async_class: ClassVar[type[AsyncBox]]

    def __init__(self, *args: Any, **options: Any) -> None:
        self._wrap(type(self)._async_class(*args, **options))

    def _wrap(self, wrapped: AsyncBox) -> Self:
        self.wrapped = wrapped
        self.id, self.timeout = wrapped.id, wrapped.timeout
        self.files = Files(wrapped.files)
        self.session = SyncSession.wrap(wrapped.session)
        return self

    start = plain(AsyncBox.start)
    detach = plain(AsyncBox.detach)
    exec = plain_command(AsyncBox.exec, AsyncBox.exec_stream)
    exec_stream = plain_stream(AsyncBox.exec_stream)
    commands = plain(AsyncBox.commands)
    run_code = plain(AsyncBox.run_code)
    stream_code = plain_stream(AsyncBox.stream_code)
    checkpoint = plain(AsyncBox.checkpoint)
    restore = plain(AsyncBox.restore)
    drop = plain(AsyncBox.drop)
    spawn = plain_process(AsyncBox.spawn)

    def shell(
        self,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        program: ShellProgram = "bash",
    ) -> ShellSession:
        """Return a shell session. See `cellblock.Sandbox.shell`."""
        return ShellSession(self.wrapped.shell(cwd=cwd, env=env, user=user, program=program))

    def fork(
        self,
        count: int = 1,
        *,
        checkpoint: Checkpoint | str | None = None,
        end_commands: bool = False,
        max_copied_bytes: int | None = None,
    ) -> list[Self]:
        """Create `count` boxes. See `cellblock.Sandbox.fork`."""
        forking = self.wrapped.fork(
            count,
            checkpoint=checkpoint,
            end_commands=end_commands,
            max_copied_bytes=max_copied_bytes,
        )
        kind = type(self)
        return [kind.__new__(kind)._wrap(branch) for branch in background_loop().run(forking)]

    def close(self) -> None:
        """Kill everything in the box and clean up. Do nothing if it is closed."""
        with contextlib.suppress(LoopEnded):
            background_loop().run(self.wrapped.close())

    def ref(self) -> str:
        """Return a text by which another process of this user can attach to a box that is kept."""
        return self.wrapped.ref()

    @property
    def closed(self) -> bool:
        """Whether the box cannot be used any more."""
        return self.wrapped.closed

    @property
    def work_dir(self) -> Path:
        """The work folder on this machine."""
        return self.wrapped.work_dir

    @property
    def inner_work_dir(self) -> str:
        """The path of the work folder in the box, where commands start."""
        return self.wrapped.inner_work_dir

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The current checkpoints, oldest first."""
        return self.wrapped.checkpoints

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed, and by which mechanism."""
        return self.wrapped.guarantees()

    def __repr__(self) -> str:
        return repr(self.wrapped)

    def __enter__(self) -> Self:
        background_loop().run(self.wrapped.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            background_loop().run(self.wrapped.__aexit__(kind, error, trace))


class Sandbox(Box):
    """`cellblock.Sandbox`, without `await`."""

    _async_class = AsyncSandbox

    @with_parameters_of(AsyncSandbox)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)

    @classmethod
    def attach(cls, ref: str, *, input_callback: InputCallback | None = None) -> Self:
        """Return a box that is kept, by its `ref`. See `cellblock.Sandbox.attach`."""
        attaching = AsyncSandbox.attach(ref, input_callback=input_callback)
        return cls.__new__(cls)._wrap(background_loop().run(attaching))


class DockerSandbox(Box):
    """`cellblock.DockerSandbox`, without `await`."""

    _async_class = AsyncDockerSandbox

    @with_parameters_of(AsyncDockerSandbox)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)

    @property
    def container(self) -> str | None:
        """The name of the container, or None if the box is not started."""
        assert isinstance(self.wrapped, AsyncDockerSandbox)
        return self.wrapped.container
