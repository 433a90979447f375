"""Run the code in the last messages, and reply with its output."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterator
from typing import Any, Literal, cast

from ...aio.background_loop import background_loop
from ...blocks import CodeBlock
from ..agent import Agent, ChatMessage
from ..agent_state import AgentState, Reply
from ..code_utils import (
    PYTHON_VARIANTS,
    check_can_use_docker_or_throw,
    decide_use_docker,
    infer_lang,
)
from ..coding.factory import CodeExecutorFactory
from ..printing import print_notice
from ..steps import Step, Steps, run, run_async
from .code_places import CodePlaces
from .code_task import CodeSettings, CodeTask, FinishedCode, runnable_language
from .executor_calls import (
    a_execute_blocks,
    call_in_thread,
    execute_blocks,
    find_code_blocks,
    result_text,
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


class CodeReplies(AgentState):
    """Runs code blocks, with an executor or where the `code_execution_config` says."""

    _code_places: CodePlaces

    def _set_up_code(self, config: dict[str, Any] | Literal[False] | None) -> None:
        """Check `code_execution_config`.

        Raise `TypeError`, `ValueError` or `RuntimeError` if it cannot work.
        """
        self._code_executor = None
        self._code_places = CodePlaces()
        if config is None:
            warnings.warn(_NONE_IS_DEPRECATED, stacklevel=3)
            config = {}
        if config is not False and not isinstance(config, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError("code_execution_config must be a dict or False.")
        self._code_execution_config = config
        if config is False:
            return
        if config.get("executor") is not None:
            _refuse_place_keys(config)
            self._code_executor = CodeExecutorFactory.create(config)
            return
        use_docker = decide_use_docker(config.get("use_docker"))
        check_can_use_docker_or_throw(use_docker)
        self._code_execution_config = {**config, "use_docker": use_docker}
        if not self._is_overridden("run_code") and not self._is_overridden("execute_code_blocks"):
            _task_and_settings("", **self._run_options("python", ""))

    @property
    def code_executor(self) -> Any:
        """The executor of `code_execution_config`. None if there is none, or code is not run."""
        return self._code_executor

    @property
    def use_docker(self) -> Any:
        """`use_docker` of `code_execution_config`; None if code is not run or has an executor."""
        config = self._code_execution_config
        return None if config is False else config.get("use_docker")

    # the reply

    def generate_code_execution_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Run the blocks of the newest message with code, and reply with their output.

        `last_n_messages` of the config says how many of the last messages are looked at; "auto"
        are those since the last message that is not the user's. Return `(False, None)` if there
        is no code, or `code_execution_config` is False.
        """
        return run(self._code_reply_steps(messages, sender, config))

    async def a_generate_code_execution_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Do what `generate_code_execution_reply` does, without blocking the event loop."""
        return await run_async(self._code_reply_steps(messages, sender, config))

    def _code_reply_steps(
        self, messages: list[ChatMessage] | None, sender: Agent | None, config: Any
    ) -> Steps[Reply]:
        config = self._code_execution_config if config is None else config
        if config is False:
            return False, None
        if messages is None:
            messages = self._oai_messages[sender] if sender is not None else []
        width = config.get("last_n_messages", "auto")
        executor = self._code_executor
        for message in _recent_messages(messages, width):
            if executor is not None:
                found = yield from self._run_with_executor_steps(executor, message)
            else:
                found = yield from self._run_by_config_steps(message)
            if found is not None:
                exit_code, output = found
                status = "execution succeeded" if exit_code == 0 else "execution failed"
                return True, f"exitcode: {exit_code} ({status})\nCode output: {output}"
        return False, None

    def _run_with_executor_steps(
        self, executor: Any, message: ChatMessage
    ) -> Steps[tuple[int, str] | None]:
        content = message.get("content")
        blocks = find_code_blocks(executor, content) if content else []
        if not blocks:
            return None
        print_notice(_describe(blocks))
        result = yield from Step(execute_blocks, a_execute_blocks)(executor, blocks)
        if (language := unrun_language(result)) is not None:
            return 1, f"\nunknown language {language}"
        return result.exit_code, result_text(result)

    def _run_by_config_steps(self, message: ChatMessage) -> Steps[tuple[int, str] | None]:
        content = message.get("content")
        found = find_code_blocks(None, content) if content else []
        if not found:
            return None
        blocks = [(block.language, block.code) for block in found]
        return (yield from Step(self.execute_code_blocks, self._a_execute_code_blocks)(blocks))

    # what subclasses override

    def execute_code_blocks(self, code_blocks: list[tuple[str, str]]) -> tuple[int, str]:
        """Run pairs of language and code, up to the first that fails.

        Return the exit code of the last one, and the output of all, each after a line end.
        Raise `ValueError` if there is no block.
        """
        return run(self._execute_steps(code_blocks))

    async def _a_execute_code_blocks(self, blocks: list[tuple[str, str]]) -> tuple[int, str]:
        if self._is_overridden("execute_code_blocks"):
            return await call_in_thread(self.execute_code_blocks, blocks)
        return await run_async(self._execute_steps(blocks))

    def _execute_steps(self, blocks: list[tuple[str, str]]) -> Steps[tuple[int, str]]:
        if not blocks:
            raise ValueError("No code blocks to execute.")
        exit_code, output = 0, ""
        for number, (tag, code) in enumerate(blocks):
            language = tag or infer_lang(code)
            print_notice(
                f"\n>>>>>>>> EXECUTING CODE BLOCK {number} (inferred language is {language})..."
            )
            if runnable_language(language) is None:
                return 1, f"{output}\nunknown language {language}"
            call = functools.partial(Step(self.run_code, self._a_run_code), code)
            exit_code, logs, image = yield from call(**self._run_options(language, code))
            if image is not None:
                cast("dict[str, Any]", self._code_execution_config)["use_docker"] = image
            output += f"\n{logs}"
            if exit_code != 0:
                break
        return exit_code, output

    def _run_options(self, language: str, code: str) -> dict[str, Any]:
        """Return the options of `run_code` for a block."""
        config = self._code_execution_config or {}
        options = {key: value for key, value in config.items() if key not in _NOT_FOR_RUN_CODE}
        if language in PYTHON_VARIANTS:
            name = _FILE_NAME.match(code)
            return {"lang": "python", "filename": name and (name[1] or None), **options}
        return {"lang": language, **options}

    def run_code(self, code: str, **kwargs: Any) -> tuple[int, str, str | None]:
        """Run code and return its exit code, its output and None.

        `kwargs` are `lang`, `filename` and the entries of `code_execution_config`. See
        `code_utils.execute_code`. Later code finds the files and packages of earlier code.
        Override it to run code elsewhere. An image instead of None is where later code runs.
        """
        done = background_loop().run(self._code_places.run(*_task_and_settings(code, **kwargs)))
        return done.exit_code, done.logs, None

    async def _a_run_code(self, code: str, **kwargs: Any) -> tuple[int, str, str | None]:
        if self._is_overridden("run_code"):
            return await call_in_thread(self.run_code, code, **kwargs)
        work = self._code_places.run(*_task_and_settings(code, **kwargs))
        done: FinishedCode = await background_loop().call(work)
        return done.exit_code, done.logs, None

    def _is_overridden(self, name: str) -> bool:
        return getattr(getattr(self, name), "__func__", None) is not getattr(CodeReplies, name)


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
