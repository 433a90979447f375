"""The executors with plain methods instead of coroutines.

Each class wraps the asynchronous executor of the same name. It is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .azure import ACADynamicSessionsCodeExecutor, AzureContainerCodeExecutor
    from .base import SyncCodeExecutor as SyncCodeExecutor
    from .batch import run_many
    from .box import DockerSandbox, Sandbox
    from .command_line import LocalCommandLineCodeExecutor, SandboxCommandLineCodeExecutor
    from .docker import (
        DockerCommandLineCodeExecutor,
        DockerJupyterCodeExecutor,
        DockerSessionCodeExecutor,
    )
    from .jupyter import JupyterCodeExecutor, JupyterServerCodeExecutor
    from .session import SandboxSessionCodeExecutor, SandboxSessionServer

__all__ = [
    "ACADynamicSessionsCodeExecutor",
    "AzureContainerCodeExecutor",
    "DockerCommandLineCodeExecutor",
    "DockerJupyterCodeExecutor",
    "DockerSandbox",
    "DockerSessionCodeExecutor",
    "JupyterCodeExecutor",
    "JupyterServerCodeExecutor",
    "LocalCommandLineCodeExecutor",
    "Sandbox",
    "SandboxCommandLineCodeExecutor",
    "SandboxSessionCodeExecutor",
    "SandboxSessionServer",
    "run_many",
]

# Module -> the names that it defines.
_MODULES = {
    "azure": "ACADynamicSessionsCodeExecutor AzureContainerCodeExecutor",
    "base": "SyncCodeExecutor",
    "batch": "run_many",
    "box": "DockerSandbox Sandbox",
    "command_line": "LocalCommandLineCodeExecutor SandboxCommandLineCodeExecutor",
    "docker": ("DockerCommandLineCodeExecutor DockerJupyterCodeExecutor DockerSessionCodeExecutor"),
    "jupyter": "JupyterCodeExecutor JupyterServerCodeExecutor",
    "session": "SandboxSessionCodeExecutor SandboxSessionServer",
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
