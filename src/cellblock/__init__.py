"""Run the code that language-model agents write: contained, exact, fast.

The names below are the public ones. Each is imported when it is first used, so that `import cellblock` costs
next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks import CodeBlock, MarkdownCodeExtractor, extract_code_blocks
    from .cancellation import CancellationToken
    from .components import Component, ComponentModel, load_component, register_component
    from .environments import create_virtual_env
    from .errors import (
        CellblockError,
        CheckpointError,
        ComponentError,
        EngineUnavailable,
        ExecutionCancelled,
        ExecutionError,
        ExecutionFailed,
        ExecutionTimeout,
        FunctionError,
        ImageUnavailable,
        PackageError,
        PlaceError,
        PlaceLost,
        SandboxUnavailable,
        SessionError,
        WorkspaceError,
    )
    from .events import Cut, Display, Ended, Event, FileMade, Output, PullProgress, Started, Usage
    from .executors.base import CodeExecutor
    from .executors.checkpoints import Checkpoint
    from .executors.docker import DockerCommandLineCodeExecutor
    from .executors.docker_jupyter import DockerJupyterCodeExecutor
    from .executors.docker_jupyter_server import DockerJupyterServer
    from .executors.docker_session import DockerSessionCodeExecutor
    from .executors.jupyter import JupyterCodeExecutor
    from .executors.jupyter_client import JupyterClient
    from .executors.jupyter_connection import JupyterConnectable, JupyterConnectionInfo
    from .executors.jupyter_server import JupyterServerCodeExecutor
    from .executors.local import LocalCommandLineCodeExecutor
    from .executors.local_jupyter_server import LocalJupyterServer
    from .executors.sandbox import SandboxCommandLineCodeExecutor
    from .executors.session import SandboxSessionCodeExecutor, Variable
    from .executors.session_server import SandboxSessionServer
    from .functions import (
        Alias,
        FunctionWithRequirements,
        FunctionWithRequirementsStr,
        ImportFromModule,
        with_requirements,
    )
    from .limits import Limits
    from .policy import Mount, Policy
    from .result import BlockResult, CodeResult, CommandLineCodeResult, JupyterCodeResult, SessionCodeResult, fold

__version__ = "0.1.0"

__all__ = [
    "Alias",
    "BlockResult",
    "CancellationToken",
    "CellblockError",
    "Checkpoint",
    "CheckpointError",
    "CodeBlock",
    "CodeExecutor",
    "CodeResult",
    "CommandLineCodeResult",
    "Component",
    "ComponentError",
    "ComponentModel",
    "Cut",
    "Display",
    "DockerCommandLineCodeExecutor",
    "DockerJupyterCodeExecutor",
    "DockerJupyterServer",
    "DockerSessionCodeExecutor",
    "Ended",
    "EngineUnavailable",
    "Event",
    "ExecutionCancelled",
    "ExecutionError",
    "ExecutionFailed",
    "ExecutionTimeout",
    "FileMade",
    "FunctionError",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "ImageUnavailable",
    "ImportFromModule",
    "JupyterClient",
    "JupyterCodeExecutor",
    "JupyterCodeResult",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "JupyterServerCodeExecutor",
    "Limits",
    "LocalCommandLineCodeExecutor",
    "LocalJupyterServer",
    "MarkdownCodeExtractor",
    "Mount",
    "Output",
    "PackageError",
    "PlaceError",
    "PlaceLost",
    "Policy",
    "PullProgress",
    "SandboxCommandLineCodeExecutor",
    "SandboxSessionCodeExecutor",
    "SandboxSessionServer",
    "SandboxUnavailable",
    "SessionCodeResult",
    "SessionError",
    "Started",
    "Usage",
    "Variable",
    "WorkspaceError",
    "create_virtual_env",
    "extract_code_blocks",
    "fold",
    "load_component",
    "register_component",
    "with_requirements",
]

_HOMES = {
    "blocks": "CodeBlock MarkdownCodeExtractor extract_code_blocks",
    "cancellation": "CancellationToken",
    "components": "Component ComponentModel load_component register_component",
    "environments": "create_virtual_env",
    "errors": (
        "CellblockError CheckpointError ComponentError EngineUnavailable "
        "ExecutionCancelled ExecutionError ExecutionFailed ExecutionTimeout FunctionError "
        "ImageUnavailable PackageError PlaceError PlaceLost SandboxUnavailable SessionError WorkspaceError"
    ),
    "events": "Cut Display Ended Event FileMade Output PullProgress Started Usage",
    "executors.base": "CodeExecutor",
    "executors.docker": "DockerCommandLineCodeExecutor",
    "executors.docker_jupyter": "DockerJupyterCodeExecutor",
    "executors.docker_jupyter_server": "DockerJupyterServer",
    "executors.docker_session": "DockerSessionCodeExecutor",
    "executors.jupyter": "JupyterCodeExecutor",
    "executors.jupyter_client": "JupyterClient",
    "executors.jupyter_connection": "JupyterConnectable JupyterConnectionInfo",
    "executors.jupyter_server": "JupyterServerCodeExecutor",
    "executors.local_jupyter_server": "LocalJupyterServer",
    "executors.local": "LocalCommandLineCodeExecutor",
    "executors.checkpoints": "Checkpoint",
    "executors.sandbox": "SandboxCommandLineCodeExecutor",
    "executors.session": "SandboxSessionCodeExecutor Variable",
    "executors.session_server": "SandboxSessionServer",
    "functions": "Alias FunctionWithRequirements FunctionWithRequirementsStr ImportFromModule with_requirements",
    "limits": "Limits",
    "policy": "Mount Policy",
    "result": "BlockResult CodeResult CommandLineCodeResult JupyterCodeResult SessionCodeResult fold",
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names.split():
            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
