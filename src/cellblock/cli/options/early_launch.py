"""Launch the sandbox of a command while the modules of its executor are still being imported."""

from __future__ import annotations

import contextlib
import os
import sys

from ...backends.server_process import SandboxServerProcess
from ...errors import BackendError
from .settings import Settings


def launch_sandbox(settings: Settings, folder: str) -> None:
    """Launch the sandbox of `settings`, unless packages must be installed before it.

    The executor that `make_executor` creates takes it. If that fails, it reports the reason.
    """
    needs_other_python = settings.packages or settings.env is not None
    if settings.executor != "sandbox" or needs_other_python or sys.platform != "linux":
        return
    with contextlib.suppress(BackendError, OSError):
        server = SandboxServerProcess()
        # Imported while Python starts in that process.
        from ...backends.sandbox import SandboxBackend
        from ...backends.sandbox_launch import launch_early
        from ...environments.interpreter import current_interpreter
        from ...limits import SANDBOX_LIMITS

        interpreter = current_interpreter()
        backend = SandboxBackend(
            interpreter,
            interpreter.packages,
            settings.limits.with_defaults(SANDBOX_LIMITS),
            settings.policy,
            settings.preload,
        )
        launch_early(backend, os.path.expanduser(folder), server)
