"""Run the code that language-model agents write: contained, exact, fast.

`__all__` lists the public names. Each one is imported on first use, so `import cellblock` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks import CodeBlock, MarkdownCodeExtractor, extract_code_blocks
    from .box.docker import DockerSandbox
    from .box.results import CommandResult
    from .box.sandbox import Sandbox
    from .cancellation import CancellationToken
    from .components import Component, ComponentModel, load_component, register_component
    from .environments.virtualenv import create_virtual_env
    from .errors import (
        AgentError,
        BackendError,
        BackendLost,
        BoxGone,
        CassetteMismatch,
        CellblockError,
        CheckpointError,
        ComponentError,
        ContainerEngineUnavailable,
        ExecutorStopped,
        FunctionError,
        ImageUnavailable,
        ImageUnusable,
        ModelError,
        ModelOutputError,
        PackageError,
        SandboxUnavailable,
        ServerFull,
        ServiceError,
        SessionError,
        UnsupportedValue,
        UserUnsupported,
        WorkspaceError,
        WorkspaceFileNotFound,
    )
    from .events import (
        Display,
        Ended,
        Event,
        FileCreated,
        Output,
        OutputTruncated,
        PullProgress,
        Started,
        Usage,
    )
    from .executors.base import CodeExecutor
    from .executors.command_line.docker import DockerCommandLineCodeExecutor
    from .executors.command_line.local import LocalCommandLineCodeExecutor
    from .executors.command_line.sandbox import SandboxCommandLineCodeExecutor
    from .executors.jupyter.admin_client import JupyterClient
    from .executors.jupyter.connection_info import JupyterConnectable, JupyterConnectionInfo
    from .executors.jupyter.docker import DockerJupyterCodeExecutor
    from .executors.jupyter.local import JupyterCodeExecutor
    from .executors.jupyter.remote import JupyterServerCodeExecutor
    from .executors.jupyter.servers.docker import DockerJupyterServer
    from .executors.jupyter.servers.local import LocalJupyterServer
    from .executors.remote.azure import (
        ACADynamicSessionsCodeExecutor,
        AzureContainerCodeExecutor,
    )
    from .executors.session.checkpoint import Checkpoint
    from .executors.session.docker import DockerSessionCodeExecutor
    from .executors.session.sandbox import SandboxSessionCodeExecutor, Variable
    from .executors.session.sandbox_server import SandboxSessionServer
    from .functions.module import (
        Alias,
        FunctionWithRequirements,
        FunctionWithRequirementsStr,
        ImportFromModule,
        with_requirements,
    )
    from .limits import Limits
    from .policy import Mount, Policy
    from .results import (
        BlockResult,
        CodeResult,
        CommandLineCodeResult,
        ExecutionCancelled,
        ExecutionError,
        ExecutionFailed,
        ExecutionTimeout,
        JupyterCodeResult,
        SessionCodeResult,
        fold,
    )
    from .sandbox.images.root_file_system import RootFileSystem
    from .sandbox.images.unpacking import open_root

__version__ = "0.6.0"

__all__ = [
    "ACADynamicSessionsCodeExecutor",
    "AgentError",
    "Alias",
    "AzureContainerCodeExecutor",
    "BackendError",
    "BackendLost",
    "BlockResult",
    "BoxGone",
    "CancellationToken",
    "CassetteMismatch",
    "CellblockError",
    "Checkpoint",
    "CheckpointError",
    "CodeBlock",
    "CodeExecutor",
    "CodeResult",
    "CommandLineCodeResult",
    "CommandResult",
    "Component",
    "ComponentError",
    "ComponentModel",
    "ContainerEngineUnavailable",
    "Display",
    "DockerCommandLineCodeExecutor",
    "DockerJupyterCodeExecutor",
    "DockerJupyterServer",
    "DockerSandbox",
    "DockerSessionCodeExecutor",
    "Ended",
    "Event",
    "ExecutionCancelled",
    "ExecutionError",
    "ExecutionFailed",
    "ExecutionTimeout",
    "ExecutorStopped",
    "FileCreated",
    "FunctionError",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "ImageUnavailable",
    "ImageUnusable",
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
    "ModelError",
    "ModelOutputError",
    "Mount",
    "Output",
    "OutputTruncated",
    "PackageError",
    "Policy",
    "PullProgress",
    "RootFileSystem",
    "Sandbox",
    "SandboxCommandLineCodeExecutor",
    "SandboxSessionCodeExecutor",
    "SandboxSessionServer",
    "SandboxUnavailable",
    "ServerFull",
    "ServiceError",
    "SessionCodeResult",
    "SessionError",
    "Started",
    "UnsupportedValue",
    "Usage",
    "UserUnsupported",
    "Variable",
    "WorkspaceError",
    "WorkspaceFileNotFound",
    "create_virtual_env",
    "extract_code_blocks",
    "fold",
    "load_component",
    "open_root",
    "register_component",
    "with_requirements",
]

# Module -> the public names that it defines.
_MODULES = {
    "blocks": "CodeBlock MarkdownCodeExtractor extract_code_blocks",
    "box.docker": "DockerSandbox",
    "box.results": "CommandResult",
    "box.sandbox": "Sandbox",
    "cancellation": "CancellationToken",
    "components": "Component ComponentModel load_component register_component",
    "environments.virtualenv": "create_virtual_env",
    "errors": (
        "AgentError BackendError BackendLost BoxGone CassetteMismatch CellblockError "
        "CheckpointError ComponentError ContainerEngineUnavailable ExecutorStopped FunctionError "
        "ImageUnavailable ImageUnusable ModelError ModelOutputError PackageError "
        "SandboxUnavailable ServerFull ServiceError SessionError UnsupportedValue UserUnsupported "
        "WorkspaceError WorkspaceFileNotFound"
    ),
    "events": "Display Ended Event FileCreated Output OutputTruncated PullProgress Started Usage",
    "executors.base": "CodeExecutor",
    "executors.command_line.docker": "DockerCommandLineCodeExecutor",
    "executors.command_line.local": "LocalCommandLineCodeExecutor",
    "executors.command_line.sandbox": "SandboxCommandLineCodeExecutor",
    "executors.jupyter.admin_client": "JupyterClient",
    "executors.jupyter.connection_info": "JupyterConnectable JupyterConnectionInfo",
    "executors.jupyter.docker": "DockerJupyterCodeExecutor",
    "executors.jupyter.local": "JupyterCodeExecutor",
    "executors.jupyter.remote": "JupyterServerCodeExecutor",
    "executors.jupyter.servers.docker": "DockerJupyterServer",
    "executors.jupyter.servers.local": "LocalJupyterServer",
    "executors.remote.azure": "ACADynamicSessionsCodeExecutor AzureContainerCodeExecutor",
    "executors.session.checkpoint": "Checkpoint",
    "executors.session.docker": "DockerSessionCodeExecutor",
    "executors.session.sandbox": "SandboxSessionCodeExecutor Variable",
    "executors.session.sandbox_server": "SandboxSessionServer",
    "functions.module": (
        "Alias FunctionWithRequirements FunctionWithRequirementsStr ImportFromModule "
        "with_requirements"
    ),
    "limits": "Limits",
    "policy": "Mount Policy",
    "results": (
        "BlockResult CodeResult CommandLineCodeResult ExecutionCancelled ExecutionError "
        "ExecutionFailed ExecutionTimeout JupyterCodeResult SessionCodeResult fold"
    ),
    "sandbox.images.root_file_system": "RootFileSystem",
    "sandbox.images.unpacking": "open_root",
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
