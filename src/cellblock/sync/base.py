"""The methods that the executors have without `await`. The background loop runs the blocks."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
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
    cast,
)

from ..aio.background_loop import LoopEnded, background_loop
from ..blocks import CodeBlockLike, MarkdownCodeExtractor
from ..cancellation import Token
from ..components import ComponentModel, SavedComponent
from ..events import Event
from ..executors.argument_checks import check_token
from ..executors.base import CodeExecutor
from ..overrides import refuse_uncalled_overrides, uncalled_overrides

if TYPE_CHECKING:
    from ..executors.command_line.base import CommandLineExecutor
    from ..executors.run_options import RunOptions
    from ..executors.session.base import SessionExecutor, Variable
    from ..executors.session.checkpoint import Checkpoint
    from ..results import CodeResult, CommandLineCodeResult, JupyterCodeResult, SessionCodeResult

_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_parameters_of(
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
    _uncalled_overrides: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_async_class" in vars(cls):
            cls._uncalled_overrides = uncalled_overrides(cls._async_class)
        refuse_uncalled_overrides(cls)

    def __init__(self, *args: Any, **options: Any) -> None:
        self._executor = type(self)._async_class(*args, **options)

    def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> CodeResult:
        """Run `code_blocks` and return their result. See `CodeExecutor.execute_code_blocks`.

        An interrupt (Ctrl-C) kills the block. After its cleanup, `KeyboardInterrupt` propagates.
        """
        return background_loop().run(
            self._delegate().execute_code_blocks(code_blocks, cancellation_token)
        )

    def execute_stream(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> Generator[Event]:
        """Run `code_blocks` and yield events as they happen. See `CodeExecutor.execute_stream`."""
        return background_loop().iterate(
            self._delegate().execute_stream(code_blocks, cancellation_token)
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
        return getattr(self._delegate(), name)

    def _delegate(self) -> CodeExecutor:
        """Return the executor, with the attributes of a subclass of this class."""
        for name in ("FUNCTION_PROMPT_TEMPLATE", "SUPPORTED_LANGUAGES"):
            if name in vars(self) or hasattr(type(self), name):
                vars(self._executor)[name] = getattr(self, name)
        return self._executor

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


class SyncCommandLine(SyncCodeExecutor):
    """Results are `CommandLineCodeResult` objects."""

    _executor: CommandLineExecutor

    def _run_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> CommandLineCodeResult:
        """Run `blocks` as `execute_code_blocks` does, with `options`."""
        check_token(token)
        self._delegate()
        run = self._executor.run_blocks(blocks, token, options)
        return cast("CommandLineCodeResult", background_loop().run(run))

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> CommandLineCodeResult: ...


class SyncKernel(SyncCodeExecutor):
    """Results are `JupyterCodeResult` objects."""

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> JupyterCodeResult: ...


class SyncSession(SyncCodeExecutor):
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

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes. See `SessionExecutor.cpu_seconds`."""
        return background_loop().run(self._executor.cpu_seconds())

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
        return [self.wrap(branch) for branch in background_loop().run(forking)]

    @classmethod
    def wrap(cls, executor: SessionExecutor) -> Self:
        """Return the synchronous face of `executor`."""
        wrapper = cls.__new__(cls)
        wrapper._executor = executor
        return wrapper
