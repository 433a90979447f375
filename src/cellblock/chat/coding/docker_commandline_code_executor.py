"""DockerCommandLineCodeExecutor: run blocks in a container that the constructor starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from ... import sync
from ...blocks import CodeBlock, CodeBlockLike
from ...cancellation import Token
from ...executors.base import validate_blocks
from ...executors.command_line.docker import IMAGE
from ...executors.run_options import RunOptions
from ...results import CommandLineCodeResult
from ...source_text import ignored_warnings
from .execution_policies import DEFAULT_EXECUTION_POLICY, merge, to_actions
from .unknown_language import with_message

_OPTIONS = {
    "device_requests": "device_requests",
    "environment": "environment",
    "extra_hosts": "extra_hosts",
    "network": "network",
    "network_mode": "network",
    "ports": "ports",
    "read_only": "read_only",
    "runtime": "runtime",
    "user": "user",
    "volumes": "extra_volumes",
}


def container_options(create_kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return AG2's `container_create_kwargs` as parameters of our executor.

    Raise `TypeError` for options that it does not have.
    """
    if unknown := sorted(set(create_kwargs) - set(_OPTIONS)):
        raise TypeError(
            f"container_create_kwargs has options that are not offered: {', '.join(unknown)}. "
            "Pass them as create_kwargs= of cellblock.sync.DockerCommandLineCodeExecutor, with the "
            "names of the engine's interface."
        )
    options = {_OPTIONS[name]: value for name, value in create_kwargs.items()}
    if isinstance(environment := options.get("environment"), list):
        pairs = (str(line).partition("=") for line in cast(list[object], environment))
        options["environment"] = {name: value for name, _, value in pairs}
    return options


class DockerCommandLineCodeExecutor(sync.DockerCommandLineCodeExecutor):
    """Run blocks in a container, which is started here. They have the network of the engine.

    execution_policies    whether the blocks of a language run, or are only saved. See
                          `DEFAULT_EXECUTION_POLICY`
    container_create_kwargs   AG2's options of the container, with the names of the package docker:
                          `environment`, `device_requests`, `volumes`, `ports`, `network`,
                          `runtime`, `user`, `extra_hosts` and `read_only`

    The files of blocks are kept in `work_dir`. `stop` and the end of this process stop the
    container. For the other parameters see `cellblock.DockerCommandLineCodeExecutor`; it also
    offers a container without a network. Raise `ContainerEngineUnavailable` or `ImageUnavailable`.
    """

    DEFAULT_EXECUTION_POLICY: ClassVar[dict[str, bool]] = DEFAULT_EXECUTION_POLICY
    # Further tags of languages.
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
        container_create_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        # The network is on, and the image can be written: old scripts install packages.
        defaults: Mapping[str, Any] = {"network": "bridge", "read_only": False}
        options = {**defaults, **container_options(container_create_kwargs or {})}
        policies = merge(self.DEFAULT_EXECUTION_POLICY, execution_policies)
        with ignored_warnings():  # AutoGen 0.2 has none here
            super().__init__(
                image,
                container_name,
                timeout=timeout,
                work_dir=work_dir,
                bind_dir=bind_dir,
                auto_remove=auto_remove,
                stop_container=stop_container,
                execution_policies=to_actions(policies),
                **options,
            )
        self.execution_policies = policies
        self.bind_dir = Path(work_dir if bind_dir is None else bind_dir)
        self.start()

    @property
    def SUPPORTED_LANGUAGES(self) -> list[str]:
        """The languages that may run or be saved: those with a policy of the class."""
        return list(self.DEFAULT_EXECUTION_POLICY)

    def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
    ) -> CommandLineCodeResult:
        """Run the blocks in order and return their result."""
        blocks = [
            CodeBlock(block.code, self.LANGUAGE_ALIASES.get(block.language.lower(), block.language))
            for block in validate_blocks(code_blocks)
        ]
        options = RunOptions(execution_policies=to_actions(self.execution_policies))
        result = self._run_blocks(blocks, cancellation_token, options)
        return with_message(result, "Unsupported language {language}\n")
