"""Run a kernel process: connect to the client, and serve its requests until it ends the kernel."""

from __future__ import annotations

from typing import Any

from ipykernel.kernelapp import IPKernelApp

from .kernel import MakeSession, SandboxKernel


class SandboxKernelApp(IPKernelApp):
    """ipykernel's application without what prepares its process for user code."""

    def init_path(self) -> None:
        """Keep the current folder off the import path: sandboxed code may have written there."""

    def init_control(self, context: Any) -> None:
        """Create the control channel, but no subshells: a session runs one cell at a time."""
        super().init_control(context)  # pyright: ignore[reportUnknownMemberType] - untyped
        self.shell_channel_thread = None


def run_kernel(
    make_session: MakeSession, connection_file: str, *, allows_scripts: bool = False
) -> None:
    """Serve the client that `connection_file` names, in the session that `make_session` makes.

    With `allows_scripts`, displays reach the client with their scripts.
    """
    app: Any = SandboxKernelApp.instance(
        kernel_class=SandboxKernel, connection_file=connection_file
    )
    app.initialize([])
    app.kernel.use_session(make_session, allows_scripts=allows_scripts)
    app.start()
