"""Run the code in the last messages, and reply with its output."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, cast

from ...aio.background_loop import background_loop
from ...blocks import CodeBlock, infer_language
from ..agent import ChatMessage, Configuration, Reply
from ..coding.base import result_text
from ..coding.factory import CodeExecutorFactory
from ..printing import print_notice
from ..steps import Step, Steps
from .code_places import CodePlaces
from .code_task import PYTHON_VARIANTS, CodeSettings, CodeTask, FinishedCode, runnable_language
from .docker_use import check_can_use_docker_or_throw, decide_use_docker
from .executor_calls import (
    a_execute_blocks,
    execute_blocks,
    find_code_blocks,
    unrun_language,
)

_NONE_IS_DEPRECATED = (
    "Using None to signal a default code_execution_config is deprecated. "
    "Use {} to use default or False to disable code execution."
)
# Of the dict form. An executor is configured itself.
_PLACE_KEYS = ("use_docker", "work_dir", "timeout")
_RUN_KEYS = {*_PLACE_KEYS, "sandbox", "allow_home"}
CONFIG_KEYS = {*_RUN_KEYS, "executor", "last_n_messages"}
"""The keys of a `code_execution_config`."""
_NOT_FOR_RUN_CODE = ("executor", "last_n_messages")
_FILE_NAME = re.compile(r"#[ \t]*filename:[ \t]*(.*?)[ \t]*(?:\r?\n|$)")


class CodeReplies:
    """Runs code blocks, with an executor or where the `code_execution_config` says.

    Raise `TypeError`, `ValueError` or `RuntimeError` if the config cannot work. `checks_options`
    is False if the agent runs the code in its own way.
    """

    def __init__(self, config: Configuration | None, *, checks_options: bool) -> None:
        self.executor: Any = None
        self._places = CodePlaces()
        if config is None:
            warnings.warn(_NONE_IS_DEPRECATED, stacklevel=3)
            config = {}
        if config is not False and not isinstance(config, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError("code_execution_config must be a dict or False.")
        self.config: Configuration = config
        if config is False:
            return
        if config.get("executor") is not None:
            _refuse_place_keys(config)
            self.executor = CodeExecutorFactory.create(config)
            return
        use_docker = decide_use_docker(config.get("use_docker"))
        check_can_use_docker_or_throw(use_docker)
        self.config = {**config, "use_docker": use_docker}
        if checks_options:
            _task_and_settings("", **self._run_options("python", ""))

    @property
    def use_docker(self) -> Any:
        """`use_docker` of the config; None if code is not run or has an executor."""
        return None if self.config is False else self.config.get("use_docker")

    def reply_steps(self, messages: list[ChatMessage], config: Any, execute: Step) -> Steps[Reply]:
        """Run the newest code of `messages`; see `generate_code_execution_reply`.

        `execute` is the agent's `execute_code_blocks`, which runs it without an executor.
        """
        config = self.config if config is None else config
        if config is False:
            return False, None
        for message in _recent_messages(messages, config.get("last_n_messages", "auto")):
            content = message.get("content")
            blocks = find_code_blocks(self.executor, content) if content else []
            if not blocks:
                continue
            if self.executor is not None:
                exit_code, output = yield from self._executor_steps(blocks)
            else:
                pairs = [(block.language, block.code) for block in blocks]
                exit_code, output = yield from execute(pairs)
            status = "execution succeeded" if exit_code == 0 else "execution failed"
            return True, f"exitcode: {exit_code} ({status})\nCode output: {output}"
        return False, None

    def _executor_steps(self, blocks: list[CodeBlock]) -> Steps[tuple[int, str]]:
        print_notice(_describe(blocks))
        result = yield from Step(execute_blocks, a_execute_blocks)(self.executor, blocks)
        if (language := unrun_language(result)) is not None:
            return 1, f"\nunknown language {language}"
        return result.exit_code, result_text(result)

    def execute_steps(
        self, blocks: list[tuple[str, str]], run_code: Step
    ) -> Steps[tuple[int, str]]:
        """Run pairs of language and code; see `execute_code_blocks`."""
        if not blocks:
            raise ValueError("No code blocks to execute.")
        exit_code, output = 0, ""
        for number, (tag, code) in enumerate(blocks):
            language = tag or infer_language(code)
            print_notice(
                f"\n>>>>>>>> EXECUTING CODE BLOCK {number} (inferred language is {language})..."
            )
            if runnable_language(language) is None:
                return 1, f"{output}\nunknown language {language}"
            options = self._run_options(language, code)
            exit_code, logs, image = yield from run_code(code, **options)
            if image is not None:
                cast("dict[str, Any]", self.config)["use_docker"] = image
            output += f"\n{logs}"
            if exit_code != 0:
                break
        return exit_code, output

    def _run_options(self, language: str, code: str) -> dict[str, Any]:
        """Return the options of `run_code` for a block."""
        config = self.config or {}
        options = {key: value for key, value in config.items() if key not in _NOT_FOR_RUN_CODE}
        if language in PYTHON_VARIANTS:
            name = _FILE_NAME.match(code)
            return {"lang": "python", "filename": name and (name[1] or None), **options}
        return {"lang": language, **options}

    def run_steps(self, code: str, **options: Any) -> Steps[tuple[int, str, str | None]]:
        """Run code in a process; see `run_code`."""
        task, settings = _task_and_settings(code, **options)
        loop = background_loop()
        run_task = Step(
            lambda: loop.run(self._places.run(task, settings)),
            lambda: loop.call(self._places.run(task, settings)),
        )
        done: FinishedCode = yield run_task
        return done.exit_code, done.logs, None


def _refuse_place_keys(config: dict[str, Any]) -> None:
    for key in _PLACE_KEYS:
        if key in config:
            raise ValueError(
                f"'{key}' in code_execution_config is not valid when 'executor' is set. "
                "Use the appropriate arg in the chosen executor instead."
            )


def _recent_messages(messages: list[ChatMessage], width: object) -> Iterator[ChatMessage]:
    """Yield the last `width` messages, the newest first. Raise `ValueError` for a wrong width."""
    is_number = isinstance(width, int) and not isinstance(width, bool) and width >= 0
    if width != "auto" and not is_number:
        raise ValueError(
            "last_n_messages must be either a non-negative integer, or the string 'auto'."
        )
    for number, message in enumerate(reversed(messages)):
        if message.get("role") != "user" if width == "auto" else number >= cast("int", width):
            return
        yield message


def _describe(blocks: list[CodeBlock]) -> str:
    if len(blocks) == 1:
        return f"\n>>>>>>>> EXECUTING CODE BLOCK (inferred language is {blocks[0].language})..."
    languages = ", ".join([block.language for block in blocks])
    return (
        f"\n>>>>>>>> EXECUTING {len(blocks)} CODE BLOCKS (inferred languages are [{languages}])..."
    )


def _task_and_settings(
    code: str, *, lang: str = "python", filename: str | None = None, **config: Any
) -> tuple[CodeTask, CodeSettings]:
    if unknown := sorted(set(config) - _RUN_KEYS):
        raise TypeError(
            f"Unknown entry in code_execution_config: {', '.join(unknown)}. Use work_dir, "
            "allow_home, use_docker, timeout, sandbox and last_n_messages, or an executor."
        )
    config.setdefault("use_docker", decide_use_docker(None))
    return CodeTask(code, lang, filename), CodeSettings.create(**config)
