"""The executors of Jupyter kernels, without `await`."""

from __future__ import annotations

from typing import Any

from ..executors.jupyter.local import JupyterCodeExecutor as AsyncJupyter
from ..executors.jupyter.remote import JupyterServerCodeExecutor as AsyncJupyterServer
from .base import SyncKernel, with_parameters_of


class JupyterCodeExecutor(SyncKernel):
    """`cellblock.JupyterCodeExecutor`, without `await`."""

    _async_class = AsyncJupyter

    @with_parameters_of(AsyncJupyter)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)


class JupyterServerCodeExecutor(SyncKernel):
    """`cellblock.JupyterServerCodeExecutor`, without `await`."""

    _async_class = AsyncJupyterServer

    @with_parameters_of(AsyncJupyterServer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
