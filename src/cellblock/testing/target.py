"""ConformanceTarget: the executor class under test, as the checks see it."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import warnings
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..blocks import CodeBlock
from ..executors.base import CodeExecutor
from ..results import CodeResult

# Names on the command line of `python -m cellblock.testing.conformance`.
EXECUTORS = {
    "sandbox": "cellblock:SandboxCommandLineCodeExecutor",
    "local": "cellblock:LocalCommandLineCodeExecutor",
    "session": "cellblock:SandboxSessionCodeExecutor",
    "docker": "cellblock:DockerCommandLineCodeExecutor",
    "docker-session": "cellblock:DockerSessionCodeExecutor",
    "jupyter": "cellblock:JupyterCodeExecutor",
}


class CheckSkipped(Exception):
    """A check needs something that this machine or executor lacks. The message says what."""


@dataclass(frozen=True)
class ConformanceTarget:
    """The executor class `factory`, as ``module:attribute``, and arguments for every executor."""

    factory: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_live(self) -> bool:
        """True if blocks share one live interpreter; False if each has a fresh process."""
        return bool(getattr(self._load_class(), "is_live", False))

    def _load_class(self) -> Any:
        module, _, attribute = self.factory.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def create(self, **options: Any) -> CodeExecutor:
        """Create an executor. Ignores warnings, such as that it is not safe."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._load_class()(**{**self.options, **options})

    @contextlib.asynccontextmanager
    async def executor(self, **options: Any) -> AsyncGenerator[tuple[CodeExecutor, Path]]:
        """Yield a started executor and its work folder, and stop the executor on exit."""
        with tempfile.TemporaryDirectory(
            prefix="cellblock-check-", ignore_cleanup_errors=True
        ) as folder:
            async with self.create(**{"work_dir": folder, "timeout": 30, **options}) as executor:
                yield executor, Path(folder)

    async def run(self, code: str, language: str = "python", **options: Any) -> CodeResult:
        """Run one block in a new executor."""
        async with self.executor(**options) as (executor, _):
            return await executor.execute_code_blocks([CodeBlock(code, language)])
