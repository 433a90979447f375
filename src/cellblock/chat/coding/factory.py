"""CodeExecutorFactory: the executor that a `code_execution_config` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .jupyter.embedded_ipython_code_executor import EmbeddedIPythonCodeExecutor
from .local_commandline_code_executor import LocalCommandLineCodeExecutor


class CodeExecutorFactory:
    """Makes executors."""

    @staticmethod
    def create(code_execution_config: Mapping[str, Any]) -> Any:
        """Return `config["executor"]` if it is an executor, or the executor that it names.

        The names are "commandline-local" and "ipython-embedded"; the entry of the same name holds
        the arguments. Any object with the method `execute_code_blocks` is an executor. Raise
        `ValueError` for anything else.
        """
        executor = code_execution_config.get("executor")
        if callable(getattr(executor, "execute_code_blocks", None)) and not isinstance(
            executor, type
        ):
            return executor
        match executor:
            case "ipython-embedded":
                return EmbeddedIPythonCodeExecutor(**code_execution_config.get(executor, {}))
            case "commandline-local":
                return LocalCommandLineCodeExecutor(**code_execution_config.get(executor, {}))
            case _:
                raise ValueError(f"Unknown code executor {executor}")
