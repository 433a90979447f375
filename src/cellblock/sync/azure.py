"""The executor of Azure dynamic sessions, without `await`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..aio.background_loop import background_loop
from ..blocks import CodeBlockLike
from ..cancellation import Token
from ..executors.remote.azure import AzureContainerCodeExecutor as AsyncAzureContainer
from ..results import SessionCodeResult
from .base import SyncCodeExecutor, with_parameters_of


class AzureContainerCodeExecutor(SyncCodeExecutor):
    """`cellblock.AzureContainerCodeExecutor`, without `await`."""

    _async_class = AsyncAzureContainer
    _executor: AsyncAzureContainer

    if TYPE_CHECKING:

        def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> SessionCodeResult: ...

    @with_parameters_of(AsyncAzureContainer)
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
