"""The executors of containers, without `await`."""

from __future__ import annotations

from typing import Any

from ..executors.command_line.docker import DockerCommandLineCodeExecutor as AsyncDockerCommandLine
from ..executors.jupyter.docker import DockerJupyterCodeExecutor as AsyncDockerJupyter
from ..executors.session.docker import DockerSessionCodeExecutor as AsyncDockerSession
from .base import SyncCommandLine, SyncKernel, SyncSession, with_parameters_of


class DockerCommandLineCodeExecutor(SyncCommandLine):
    """`cellblock.DockerCommandLineCodeExecutor`, without `await`."""

    _async_class = AsyncDockerCommandLine

    @with_parameters_of(AsyncDockerCommandLine)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class DockerJupyterCodeExecutor(SyncKernel):
    """`cellblock.DockerJupyterCodeExecutor`, without `await`."""

    _async_class = AsyncDockerJupyter

    @with_parameters_of(AsyncDockerJupyter)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class DockerSessionCodeExecutor(SyncSession):
    """`cellblock.DockerSessionCodeExecutor`, without `await`."""

    _async_class = AsyncDockerSession

    @with_parameters_of(AsyncDockerSession)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
