"""SandboxCommandLineCodeExecutor: blocks behind walls, on this machine, with nothing to install."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, get_args

from ...backends.base import Place
from ...backends.landlock import LandlockPlace
from ...backends.sandbox import ENVIRONMENT, WORK_DIR
from ...backends.shared_server import SharedPlace
from ...environments.interpreter import find_interpreter, lay_environment
from ...functions.module import Function
from ...languages import Action, Language
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ...sandbox.guarantees import Guarantee, Isolation, sandbox_guarantees
from ...sandbox.probe import probe
from ..workspace import ownership_lease
from .base import CommandLineExecutor, command_on_host, texts


class SandboxCommandLineCodeExecutor(CommandLineExecutor):
    """Run blocks in a sandbox of this machine: they see their work folder, Python and the system's programs, read-only.

    policy                what blocks may read, write and reach beyond that; without network by default
    preload               modules to import once, so that blocks find them imported; `PackageError` where that does not work
    virtual_env_context   its Python, its packages and their commands are the blocks'
    isolation             "full", or by name the weaker "landlock", which needs no namespaces; see `guarantees`

    Blocks see the work folder as /workspace, and have a home and a Python environment of this executor's own, in which
    `pip install` works for the blocks after it. `restart` makes both new. Executors of one process with the same settings
    share a warm server, which makes all but the first start in milliseconds, and see nothing of each other. For the other
    parameters see `CommandLineExecutor`. Starting raises `SandboxUnavailable` where this machine does not allow the sandbox.
    """

    def __init__(
        self,
        timeout: float = 60,
        work_dir: str | os.PathLike[str] | None = None,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        cleanup_temp_files: bool = True,
        virtual_env_context: SimpleNamespace | None = None,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        isolation: Isolation = "full",
        execution_policies: Mapping[str, Action] | None = None,
        save_output: bool = False,
    ) -> None:
        super().__init__(
            timeout,
            work_dir,
            functions,
            functions_module,
            cleanup_temp_files,
            packages=packages,
            limits=limits,
            execution_policies=execution_policies,
            save_output=save_output,
        )
        self._policy = policy or Policy()
        self._preload = texts("preload", preload)
        if isolation not in get_args(Isolation):
            raise ValueError(
                f"isolation must be one of {', '.join(get_args(Isolation))}, not {isolation!r}."
            )
        self._isolation: Isolation = isolation
        self._virtual_env_context = virtual_env_context
        self._use: ownership_lease.Use | None = None

    @property
    def policy(self) -> Policy:
        """What blocks may read, write and reach."""
        return self._policy

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Say what holds on this machine with these settings, and what makes it hold.

        It is found out by trying, which takes some tenths of a second the first time and blocks meanwhile.
        """
        return sandbox_guarantees(probe(), self._limits, self._policy, self._isolation)

    async def _open(self) -> None:
        async with self._using():
            await super()._open()

    async def _close(self, *, restarting: bool) -> None:
        await super()._close(restarting=restarting)
        await self._end_use()

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncGenerator[None]:
        """Note that the work folder is used, which opening may lend to the cells."""
        if self._given_work_dir is None:
            yield
            return
        self._use = ownership_lease.Use(str(self._given_work_dir))
        try:
            yield
            self._use.note()
        except BaseException:
            await self._end_use()
            raise

    async def _end_use(self) -> None:
        use, self._use = self._use, None
        if use is not None:
            await asyncio.to_thread(use.end)

    async def _make_place(self, packages: tuple[str, ...], delete: list[str]) -> Place:
        interpreter = await find_interpreter(self._python())
        shown = (*packages, *interpreter.packages)
        scratch = Path(tempfile.mkdtemp(prefix="cellblock-scratch-"))
        delete.append(str(scratch))
        (scratch / "home").mkdir()
        full = self._isolation == "full"
        lay_environment(scratch / "env", interpreter, shown, seen_as=ENVIRONMENT if full else None)
        self._program = str(scratch / "env" / "bin" / "python")
        assert self._workspace is not None
        kind = SharedPlace if full else LandlockPlace
        return kind(
            work_dir=str(self._workspace.path),
            scratch=str(scratch),
            interpreter=interpreter,
            packages=shown,
            limits=self._limits,
            policy=self._policy,
            preload=self._preload,
            delete=delete,
        )

    def _python(self) -> str | None:
        return None if self._virtual_env_context is None else str(self._virtual_env_context.env_exe)

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        if self._isolation != "full":
            return command_on_host(self._workspace, language, name, self._program)
        path = f"{WORK_DIR}/{name}"
        if language.name == "python":
            return {"script": path}
        return {"argv": [*(language.argv or ()), path]}

    def _to_config(self) -> dict[str, Any]:
        own = {
            "policy": self._policy.to_dict(),
            "preload": list(self._preload),
            "isolation": self._isolation,
        }
        return {**super()._to_config(), **own}

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        values = dict(config)
        if (policy := values.pop("policy", None)) is not None:
            values["policy"] = Policy.from_dict(policy)
        return super()._from_config(values)
