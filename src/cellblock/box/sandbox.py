"""Sandbox: a box in a sandbox on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Self

from ..aio.background_loop import background_loop
from ..executors.argument_checks import check_bool, check_limits
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from ..executors.session.settings import InputCallback
from ..functions.module import Function
from ..limits import BOX_LIMITS, Limits
from ..policy import Policy
from ..sandbox.images.root_file_system import RootSource
from .arguments import Default, check_seconds
from .base import Box
from .kept.session import attached_session, kept_session

_KEPT_SECONDS = 3600.0


class Sandbox(Box):
    """A box in a sandbox on this machine.

    Starting raises `SandboxUnavailable` if this machine does not support the sandbox. For the
    parameters see `Box`, `SandboxSessionCodeExecutor` and `SandboxCommandLineCodeExecutor`.
    `limits` are for the box as a whole, and `wall_seconds` for each command and block.

    root   the root file system of commands and `files`: a folder, an OCI image layout, an archive
           of `docker save`, or what `open_root` returns. The live Python stays in the sandbox's
           own, with the same work folder. None means that of the sandbox. Starting raises
           `ImageUnusable`
    kept   it outlives this process, which a process of its own has it for. `attach` continues to
           use it anywhere on this machine, as the same user: `ref` names it. `async with` leaves it
           alive, and so does the end of this process; `close` ends it for all that are attached to
           it. `idle_seconds` is one hour by default
    users  let commands and `files` have other users too, such as `user="root"`, if this machine can
           map them. `guarantees()` says whether it can; if not, `UserUnsupported` says why
    """

    def __init__(
        self,
        timeout: float | None = 60,
        work_dir: str | os.PathLike[str] | None = None,
        *,
        packages: Sequence[str] = (),
        limits: Limits = BOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        input_callback: InputCallback | None = None,
        virtual_env_context: SimpleNamespace | None = None,
        functions: Sequence[Function] = (),
        idle_seconds: float | None | Default = Default.IDLE_SECONDS,
        root: RootSource | None = None,
        kept: bool = False,
        users: bool = False,
    ) -> None:
        if isinstance(idle_seconds, Default):
            idle_seconds = _KEPT_SECONDS if kept else None
        session = SandboxSessionCodeExecutor(
            timeout,
            work_dir,
            functions,
            virtual_env_context=virtual_env_context,
            packages=packages,
            limits=check_limits(limits, BOX_LIMITS),
            policy=policy,
            preload=preload,
            keep_processes=True,
            input_callback=None if kept else input_callback,
        )
        session.place.sharing_group, session.place.root_source = "box", root
        session.place.users = check_bool("users", users)
        if check_bool("kept", kept):
            seconds = check_seconds(idle_seconds, "idle_seconds")
            super().__init__(kept_session(session, seconds, input_callback), None)
        else:
            super().__init__(session, idle_seconds)

    @classmethod
    async def attach(cls, ref: str, *, input_callback: InputCallback | None = None) -> Self:
        """Return a box that is kept, by what its `ref` has returned in any process of this user.

        Raise `BoxGone` if it has ended, `BackendError` if another version of Cellblock has made it,
        and `ValueError` if `ref` is something else.
        """
        session = await background_loop().call(attached_session(ref, input_callback))
        box = object.__new__(cls)
        Box.__init__(box, session, None)
        await box.start()
        return box
