"""Refuse to run code on a machine without Linux, and say what to use instead."""

from __future__ import annotations

import sys

from ..errors import BackendError, SandboxUnavailable

_NAMES = {"darwin": "macOS", "win32": "Windows"}
_INSTEAD = (
    "Use a container: DockerCommandLineCodeExecutor(), with the extra docker.\n"
    "Or use AzureContainerCodeExecutor('https://MACHINE:8000', KEY), with `cellblock serve` on a "
    "Linux machine or in a container."
)


def check_sandbox_system() -> None:
    """Raise `SandboxUnavailable` if this system is not Linux."""
    if sys.platform != "linux":
        raise SandboxUnavailable(f"The sandbox needs Linux, and this is {_name()}.", _INSTEAD)


def check_runtime_system() -> None:
    """Raise `BackendError` if this system is not Linux, whose kernel the runtime server needs."""
    if sys.platform != "linux":
        raise BackendError(
            f"Blocks and kernels run on this machine only with Linux, and this is {_name()}.\n"
            f"{_INSTEAD}"
        )


def _name() -> str:
    return _NAMES.get(sys.platform, sys.platform)
