"""AutoGen 0.2's functions about code: extract it from a message, infer its language, run it."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, cast

from ..aio.background_loop import background_loop
from ..blocks import infer_language
from ..environments.virtualenv import create_virtual_env
from .code.code_places import CodePlaces
from .code.code_task import (
    DEFAULT_TIMEOUT,
    PYTHON_VARIANTS,
    TIMEOUT_MSG,
    CodeSettings,
    CodeTask,
    FinishedCode,
)
from .code.docker_use import (
    UseDocker,
    check_can_use_docker_or_throw,
    decide_use_docker,
    in_docker_container,
    is_docker_running,
)
from .message_text import content_str

__all__ = [
    "CODE_BLOCK_PATTERN",
    "DEFAULT_MODEL",
    "DEFAULT_TIMEOUT",
    "FAST_MODEL",
    "PATH_SEPARATOR",
    "PYTHON_VARIANTS",
    "SENTINEL",
    "TIMEOUT_MSG",
    "UNKNOWN",
    "WIN32",
    "check_can_use_docker_or_throw",
    "content_str",
    "create_virtual_env",
    "decide_use_docker",
    "execute_code",
    "extract_code",
    "in_docker_container",
    "infer_lang",
    "is_docker_running",
]

WIN32 = sys.platform == "win32"
"""Whether this machine runs Windows."""
PATH_SEPARATOR = os.sep
"""The separator of the parts of a path."""
UNKNOWN = "unknown"
"""The language of text in which no code was found."""
DEFAULT_MODEL = "gpt-4"
"""The model that old examples name by default."""
FAST_MODEL = "gpt-3.5-turbo"
"""The cheaper model that old examples name."""
CODE_BLOCK_PATTERN = r"```[ \t]*(\w+)?[ \t]*\r?\n(.*?)\r?\n[ \t]*```"
"""The pattern of a code block: a language, if one is named, and the code."""
SENTINEL = object()
"""Stands for "not given", where None means something else."""

# A block, which may be empty or on one line, or text in single backticks.
_BLOCK_OR_SINGLE_LINE = re.compile(
    r"```(?:[ \t]*(\w+)[ \t]*(?=\r?\n))?\s*(.*?)\s*```|`([^`]+)`", re.DOTALL
)


def extract_code(
    text: str | list[Any] | None,
    pattern: str = CODE_BLOCK_PATTERN,
    detect_single_line_code: bool = False,
) -> list[tuple[str, str]]:
    """Return the code in `text` as pairs of language and code.

    The language is "" where none is named. If there is no code, the only pair is
    `("unknown", text)`. `text` may be the parts of a multimodal message. `detect_single_line_code`
    also finds `code` in single backticks; it ignores `pattern` and returns [] if there is no code.
    """
    content = content_str(text)
    if detect_single_line_code:
        return [
            (match[1].strip() if match[1] else "", (match[2] or match[3] or "").strip())
            for match in _BLOCK_OR_SINGLE_LINE.finditer(content)
        ]
    found = cast("list[tuple[str, str]]", re.findall(pattern, content, flags=re.DOTALL))
    return found or [(UNKNOWN, content)]


def infer_lang(code: str) -> str:
    """Return "sh" for a python or pip command, "python" if `code` compiles, else "unknown"."""
    return infer_language(code)


def execute_code(
    code: str | None = None,
    timeout: float | None = None,
    filename: str | None = None,
    work_dir: str | None = None,
    use_docker: UseDocker | object = SENTINEL,
    lang: str | None = "python",
    *,
    sandbox: bool = True,
    allow_home: bool = False,
) -> tuple[int, str, str | None]:
    """Run code in a fresh process and return its exit code, its output and the image.

    code         the code; None runs the existing file `filename`
    timeout      seconds that the code may run; None: 600
    filename     name of the file in `work_dir`; None: a temporary file
    work_dir     folder of the code; None: a temporary folder, which is removed
    use_docker   see `UseDocker`; not given: see `decide_use_docker`
    sandbox      without Docker, run the code in a sandbox with this machine's network. False: run
                 it on this machine, with your rights
    allow_home   let `work_dir` be your home folder, which is refused otherwise

    The output is what the code wrote to standard output, or after a failure to standard error.
    After `timeout` the exit code is 1, and the output ends with "Timeout". The image is None
    without Docker.

    Raise `AssertionError` if there is no code and no file, `NotImplementedError` for an unknown
    language, `RuntimeError` if Docker is wanted and not running, and the errors of
    `cellblock.CodeExecutor` if the code could not run.
    """
    if use_docker is SENTINEL:
        use_docker = decide_use_docker(None)
    task = CodeTask(code, lang or "python", filename)
    if not task.is_runnable:
        raise NotImplementedError(f"{lang} not recognized in code execution")
    check_can_use_docker_or_throw(use_docker)
    settings = CodeSettings.create(
        use_docker=use_docker,
        work_dir=work_dir,
        timeout=timeout,
        sandbox=sandbox,
        allow_home=allow_home,
    )
    done = background_loop().run(_run_once(task, settings))
    return done.exit_code, done.logs, done.image


async def _run_once(task: CodeTask, settings: CodeSettings) -> FinishedCode:
    places = CodePlaces()
    try:
        return await places.run(task, settings)
    finally:
        await places.close()
