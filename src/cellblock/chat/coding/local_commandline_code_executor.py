"""LocalCommandLineCodeExecutor: run blocks as processes of this machine, with AutoGen's rules."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from ... import sync
from ...blocks import CodeBlockLike
from ...cancellation import Token
from ...executors.base import validate_blocks
from ...executors.run_options import RunOptions
from ...functions.module import FUNCTION_PROMPT_TEMPLATE, Function
from ...results import CommandLineCodeResult
from ...source_text import ignored_warnings
from .dangerous_commands import refusal_of
from .execution_policies import DEFAULT_EXECUTION_POLICY, merge, to_actions
from .unknown_language import with_message


class LocalCommandLineCodeExecutor(sync.LocalCommandLineCodeExecutor):
    """Run blocks as ordinary processes on this machine, with your rights and without a sandbox.

    execution_policies    whether the blocks of a language run, or are only saved. See
                          `DEFAULT_EXECUTION_POLICY`

    The files of blocks are kept in `work_dir`. Blocks with certain shell commands are refused; see
    `sanitize_command`. `cellblock.sync.SandboxCommandLineCodeExecutor` protects this machine. For
    the other parameters see `cellblock.LocalCommandLineCodeExecutor`.
    """

    SUPPORTED_LANGUAGES: ClassVar[list[str]] = list(DEFAULT_EXECUTION_POLICY)
    DEFAULT_EXECUTION_POLICY: ClassVar[dict[str, bool]] = DEFAULT_EXECUTION_POLICY
    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE

    def __init__(
        self,
        timeout: float = 60,
        virtual_env_context: SimpleNamespace | None = None,
        work_dir: str | os.PathLike[str] = Path("."),
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        execution_policies: Mapping[str, bool] | None = None,
    ) -> None:
        policies = merge(self.DEFAULT_EXECUTION_POLICY, execution_policies)
        with ignored_warnings():  # AutoGen 0.2 has none here
            super().__init__(
                timeout,
                work_dir,
                functions,
                functions_module,
                False,
                virtual_env_context,
                execution_policies=to_actions(policies),
            )
        self.execution_policies = policies

    def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> CommandLineCodeResult:
        """Run the blocks in order and return their result.

        If `sanitize_command` refuses one of them, none runs, and the result says why.
        """
        for block in validate_blocks(code_blocks):
            try:
                self.sanitize_command(block.language, block.code)
            except ValueError as refusal:
                return CommandLineCodeResult(1, str(refusal), outcome="error")
        options = RunOptions(execution_policies=to_actions(self.execution_policies))
        result = self._run_blocks(code_blocks, cancellation_token, options)
        return with_message(result, "\nunknown language {language}")

    @staticmethod
    def sanitize_command(lang: str, code: str) -> None:
        """Raise `ValueError` for a shell command that often does harm, such as `rm -rf`.

        This only catches slips. Code that wants to do harm finds other words.
        """
        if refusal := refusal_of(lang, code):
            raise ValueError(refusal)

    def restart(self) -> None:
        """Warn that there is nothing to restart: each block is a fresh process."""
        warnings.warn(
            "Restarting local command line code executor is not supported. No action is taken.",
            stacklevel=2,
        )
