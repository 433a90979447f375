"""The command-line executors of this machine, without `await`."""

from __future__ import annotations

from typing import Any

from ..executors.command_line.local import LocalCommandLineCodeExecutor as AsyncLocalCommandLine
from ..executors.command_line.sandbox import (
    SandboxCommandLineCodeExecutor as AsyncSandboxCommandLine,
)
from .base import SyncCommandLine, with_parameters_of


class LocalCommandLineCodeExecutor(SyncCommandLine):
    """`cellblock.LocalCommandLineCodeExecutor`, without `await`."""

    _async_class = AsyncLocalCommandLine

    @with_parameters_of(AsyncLocalCommandLine)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class SandboxCommandLineCodeExecutor(SyncCommandLine):
    """`cellblock.SandboxCommandLineCodeExecutor`, without `await`."""

    _async_class = AsyncSandboxCommandLine

    @with_parameters_of(AsyncSandboxCommandLine)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
