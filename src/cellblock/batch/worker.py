"""Worker: an executor that judges one program after the other, each as if it were the first."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import cast

from ..components import SavedComponent
from ..errors import CellblockError
from ..executors.base import CodeExecutor
from ..executors.command_line.base import CommandLineExecutor
from ..executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ..executors.places.clean_folders import CleanFolders
from ..executors.places.host import HostPlace
from ..executors.places.sandbox import SandboxPlace
from .judge import judge
from .program_runs import executor_cpu_seconds
from .programs import JudgeLimits, Program
from .verdicts import Verdict

_OWN_FOLDER = (
    "run_many gives each program a fresh executor and an empty work folder: pass an executor "
    "without {}. Give the programs files by Program(files=...), or by policy=Policy(read_only=...)."
)
_log = logging.getLogger(__name__)


class WorkerSettings:
    """What the executors of workers are made from: a saved executor, and limits."""

    def __init__(self, executor: CodeExecutor | SavedComponent | None, limits: JudgeLimits) -> None:
        """Raise `ValueError` if programs cannot be judged in executors like `executor`."""
        if executor is None:
            executor = SandboxCommandLineCodeExecutor()
        if isinstance(executor, CodeExecutor):
            executor = executor.dump_component()
        self.limits = limits
        saved = _load(executor)
        if not isinstance(saved, CommandLineExecutor):
            raise ValueError(
                f"Programs run as fresh processes, not in a {type(saved).__name__}: pass an "
                "executor such as SandboxCommandLineCodeExecutor or DockerCommandLineCodeExecutor."
            )
        model = saved.dump_component()
        self._model = replace(model, config=_config(model.config, limits))

    @property
    def key(self) -> str:
        """What tells these settings from others."""
        return json.dumps([asdict(self._model), asdict(self.limits)], sort_keys=True)

    @property
    def has_network(self) -> bool:
        """Whether programs can use the network of the machine."""
        policy = cast("Mapping[str, object]", self._model.config.get("policy") or {})
        return policy.get("network") == "host"

    def make_executor(self) -> CommandLineExecutor:
        """Return a new executor."""
        executor = _load(self._model)
        assert isinstance(executor, CommandLineExecutor)
        return executor


def _load(saved: SavedComponent) -> CodeExecutor:
    with warnings.catch_warnings():  # of the local executor: the caller has seen it
        warnings.simplefilter("ignore")
        return CodeExecutor.load_component(saved)


def _config(config: Mapping[str, object], limits: JudgeLimits) -> Mapping[str, object]:
    """Return `config` with `limits` and a work folder of its own."""
    for name in ("work_dir", "bind_dir", "container_name"):
        if config.get(name) is not None:
            raise ValueError(_OWN_FOLDER.format(name))
    own = {
        "memory_bytes": limits.memory_bytes,
        "output_bytes": limits.output_bytes,
        "cpu_seconds": executor_cpu_seconds(limits),  # `judge` sets that of each run
    }
    saved = cast("Mapping[str, object]", config["limits"])
    return {**config, "timeout": limits.wall_seconds, "limits": {**saved, **own}}


class Worker:
    """An executor that judges one program after the other. Used on the background loop.

    Folders that a program changed are emptied, or replaced with the executor. An executor whose
    folders cannot be seen from here is started anew for each program.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._executor: CodeExecutor | None = None
        self._is_fresh = False  # nothing has run in it
        self._folders: CleanFolders | None = None

    async def judge(self, program: Program) -> Verdict:
        """Return the verdict on `program`. Raise the errors of executors."""
        executor = await self.clean_executor()
        self._is_fresh = False
        try:
            return await judge(executor, program, self._settings.limits)
        except BaseException:
            await self.stop()
            raise

    async def clean_executor(self) -> CodeExecutor:
        """Return the executor, started, without traces of earlier programs."""
        if self._executor is not None and not (self._is_fresh or await self._is_clean()):
            await self.stop()
        if self._executor is None:
            self._executor = await self._start()
            self._is_fresh = True
        return self._executor

    async def _start(self) -> CodeExecutor:
        executor = self._settings.make_executor()
        await executor.start()
        self._folders = None
        if isinstance(executor.place, SandboxPlace | HostPlace):
            with contextlib.suppress(OSError):  # then it is not used again
                self._folders = CleanFolders(executor.place)
        return executor

    async def _is_clean(self) -> bool:
        return self._folders is not None and await self._folders.clean()

    async def stop(self) -> None:
        """Stop the executor. The next program gets a new one."""
        executor, self._executor = self._executor, None
        if executor is not None:
            try:
                await executor.stop()
            except (CellblockError, OSError) as error:  # it is replaced, because it had failed
                _log.warning("%r could not be stopped: %s", executor, error)
