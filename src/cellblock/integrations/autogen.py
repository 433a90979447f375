"""AutoGenCodeExecutor: any executor as one of AutoGen's own. Needs `autogen-core`."""

# AutoGen is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core import code_executor as autogen
from pydantic import BaseModel

from .. import results
from ..blocks import CodeBlockLike
from ..components import load_component
from ..executors.base import CodeExecutor


@dataclass
class AutoGenCodeResult(autogen.CodeResult):
    """AutoGen's result. `details` is the whole result: files, displays, outcome and more."""

    details: results.CodeResult


class AutoGenConfig(BaseModel):
    """What `AutoGenCodeExecutor.dump_component` saves: the configuration of its executor."""

    executor: dict[str, Any]


class AutoGenCodeExecutor(autogen.CodeExecutor, Component[AutoGenConfig]):
    """Run blocks with `executor`, which AutoGen's agents then accept as one of AutoGen's own.

    AutoGen's agents can be saved and loaded with it. Only executors that `load_component` of
    Cellblock accepts are loaded. A time limit and a cancellation end in a result, as they do in
    AutoGen's command-line executors.
    """

    component_config_schema = AutoGenConfig
    component_provider_override = "cellblock.integrations.autogen.AutoGenCodeExecutor"

    def __init__(self, executor: CodeExecutor) -> None:
        if not isinstance(executor, CodeExecutor):
            raise ValueError(
                "executor must be an executor such as cellblock.SandboxCommandLineCodeExecutor(), "
                f"not {executor!r:.100}. The executors of cellblock.sync cannot be used here."
            )
        self.executor = executor

    async def execute_code_blocks(
        self,
        code_blocks: Sequence[CodeBlockLike],
        cancellation_token: CancellationToken | None = None,
    ) -> AutoGenCodeResult:
        """Run `code_blocks`. Raise the errors of `cellblock.CodeExecutor.execute_code_blocks`."""
        result = await self.executor.execute_code_blocks(code_blocks, cancellation_token)
        return AutoGenCodeResult(result.exit_code, result.output, result)

    async def start(self) -> None:
        """Start the executor."""
        await self.executor.start()

    async def stop(self) -> None:
        """Stop the executor."""
        await self.executor.stop()

    async def restart(self) -> None:
        """Restart the executor."""
        await self.executor.restart()

    def _to_config(self) -> AutoGenConfig:
        return AutoGenConfig(executor=self.executor.dump_component().to_dict())

    @classmethod
    def _from_config(cls, config: AutoGenConfig) -> Self:
        executor: Any = load_component(config.executor)
        return cls(executor)
