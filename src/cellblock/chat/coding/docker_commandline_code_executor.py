"""DockerCommandLineCodeExecutor: run blocks in a container that the constructor starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ... import sync
from ...blocks import CodeBlockLike
from ...cancellation import Token
from ...executors.command_line.docker import IMAGE
from ...results import CommandLineCodeResult
from ...source_text import ignored_warnings
from .execution_policies import DEFAULT_EXECUTION_POLICY, to_actions
from .unknown_language import with_message


class DockerCommandLineCodeExecutor(sync.DockerCommandLineCodeExecutor):
    """Run blocks in a container, which is started here. They have the network of the engine.

    execution_policies    whether the blocks of a language run, or are only saved. See
                          `DEFAULT_EXECUTION_POLICY`

    The files of blocks are kept in `work_dir`. `stop` and the end of this process stop the
    container. For the other parameters see `cellblock.DockerCommandLineCodeExecutor`; it also
    offers a container without a network. Raise `ContainerEngineUnavailable` or `ImageUnavailable`.
    """

    DEFAULT_EXECUTION_POLICY: ClassVar[dict[str, bool]] = DEFAULT_EXECUTION_POLICY
    LANGUAGE_ALIASES: ClassVar[dict[str, str]] = {"py": "python", "js": "javascript"}

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        timeout: float = 60,
        work_dir: str | os.PathLike[str] = Path("."),
        bind_dir: str | os.PathLike[str] | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        execution_policies: Mapping[str, bool] | None = None,
    ) -> None:
        with ignored_warnings():  # AutoGen 0.2 has none here
            super().__init__(
                image,
                container_name,
                timeout=timeout,
                work_dir=work_dir,
                bind_dir=bind_dir,
                auto_remove=auto_remove,
                stop_container=stop_container,
                execution_policies=to_actions(execution_policies),
                network="bridge",
                read_only=False,  # old scripts install packages
            )
        self.execution_policies = {**DEFAULT_EXECUTION_POLICY, **(execution_policies or {})}
        self.bind_dir = Path(work_dir if bind_dir is None else bind_dir)
        self.start()

    def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> CommandLineCodeResult:
        """Run the blocks in order and return their result."""
        result = super().execute_code_blocks(code_blocks, cancellation_token)
        return with_message(result, "Unsupported language {language}\n")
