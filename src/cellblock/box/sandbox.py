"""Sandbox: a box in a sandbox on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace

from ..executors.session.sandbox import SandboxSessionCodeExecutor
from ..executors.session.settings import InputCallback
from ..functions.module import Function
from ..limits import SANDBOX_LIMITS, Limits
from ..policy import Policy
from ..sandbox.images.root_file_system import RootSource
from .base import Box


class Sandbox(Box):
    """A box in a sandbox on this machine.

    Starting raises `SandboxUnavailable` if this machine does not support the sandbox. For the
    parameters see `Box`, `SandboxSessionCodeExecutor` and `SandboxCommandLineCodeExecutor`.
    `limits` are for the box as a whole, and `wall_seconds` for each command and block.

    root   the root file system of commands and `files`: a folder, an OCI image layout, an archive
           of `docker save`, or what `open_root` returns. The live Python stays in the sandbox's
           own, with the same work folder. None means that of the sandbox. Starting raises
           `ImageUnusable`
    """

    def __init__(
        self,
        timeout: float | None = 60,
        work_dir: str | os.PathLike[str] | None = None,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        input_callback: InputCallback | None = None,
        virtual_env_context: SimpleNamespace | None = None,
        functions: Sequence[Function] = (),
        idle_seconds: float | None = None,
        root: RootSource | None = None,
    ) -> None:
        session = SandboxSessionCodeExecutor(
            timeout,
            work_dir,
            functions,
            virtual_env_context=virtual_env_context,
            packages=packages,
            limits=limits,
            policy=policy,
            preload=preload,
            keep_processes=True,
            input_callback=input_callback,
        )
        session.place.sharing_group, session.place.root_source = "box", root
        super().__init__(session, idle_seconds)
