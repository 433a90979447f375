"""CodeTask: code to run as AutoGen 0.2 describes it, and what AutoGen 0.2 shows of its result."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ...blocks import CodeBlock, file_name
from ...environments.exposed_folder import exposure_of
from ...languages import Language, find_language
from ...results import CodeResult, CommandLineCodeResult

DEFAULT_TIMEOUT = 600
"""Seconds that code may run if no time limit is given."""
TIMEOUT_MSG = "Timeout"
"""The end of the output of code that ran too long."""
DEFAULT_IMAGES = ("python:3-slim", "python:3")
"""The images of which the first that there is runs the code in Docker."""
PYTHON_VARIANTS = ["python", "Python", "py"]
"""Tags of Python."""
_VISIBLE_WORK_DIR = "/workspace"  # in the sandbox and in containers


@dataclass(frozen=True)
class CodeSettings:
    """What a `code_execution_config` without an executor says. `images` is empty without Docker."""

    images: tuple[str, ...]
    work_dir: str | None
    timeout: float
    sandbox: bool

    @classmethod
    def create(
        cls,
        *,
        use_docker: object = None,
        work_dir: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        sandbox: bool = True,
        allow_home: bool = False,
    ) -> CodeSettings:
        """Return the settings for values of a `code_execution_config`.

        Raise `TypeError` or `ValueError`. `allow_home` lets `work_dir` be the home folder.
        """
        images = _images(use_docker)
        _check_timeout(timeout)
        if work_dir is not None and (images or sandbox):
            _refuse_exposed_folder(work_dir, allow_home=allow_home)
        folder = None if work_dir is None else os.path.abspath(os.path.expanduser(work_dir))
        limit = DEFAULT_TIMEOUT if timeout is None else timeout
        return cls(images, folder, limit, sandbox)


def _check_timeout(timeout: object) -> None:
    if timeout is not None and not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, not {timeout!r:.100}.")


def _refuse_exposed_folder(folder: str | os.PathLike[str], *, allow_home: bool) -> None:
    what = exposure_of(folder)
    if what is None or (what == "your home folder" and allow_home):
        return
    advice = "Use a separate folder for the code."
    if what == "your home folder":
        advice = f"{advice[:-1]}, or allow it with allow_home: True next to work_dir."
    raise ValueError(
        f"Code could read and change all files that you can, because work_dir {str(folder)!r} is "
        f"{what}. {advice}"
    )


def _images(use_docker: object) -> tuple[str, ...]:
    if use_docker is None or use_docker is True:
        return DEFAULT_IMAGES
    if not use_docker:
        return ()
    if isinstance(use_docker, str):
        return (use_docker,)
    if isinstance(use_docker, Sequence):
        return tuple(cast("Sequence[str]", use_docker))
    raise ValueError(
        "use_docker must be True, False, None, the name of an image or a list of names, "
        f"not {use_docker!r:.100}."
    )


@dataclass(frozen=True)
class CodeTask:
    """Code to run, in a file that has a name if `filename` is given. Without code, run the file."""

    code: str | None
    language: str
    filename: str | None = None

    def __post_init__(self) -> None:
        if self.code is None and self.filename is None:
            raise AssertionError("Either code=None or filename=None must be provided.")

    @property
    def is_runnable(self) -> bool:
        """Whether the language is one that can be run."""
        return runnable_language(self.language) is not None

    def block(self, settings: CodeSettings, python: str) -> CodeBlock:
        """Return the block that runs the code. `python` is the program that runs Python files."""
        if self.code is None:
            return CodeBlock(self._command(settings, python), "sh")
        code, language = self.code, find_language(self.language)
        if self.filename and file_name(code) != self.filename:
            mark = "//" if language is not None and language.name == "javascript" else "#"
            code = f"{mark} filename: {self.filename}\n{code}"
        return CodeBlock(code, self.language)

    def _command(self, settings: CodeSettings, python: str) -> str:
        language = runnable_language(self.language)
        program = (python,) if language is None or language.name == "python" else language.argv
        name = self.filename or ""
        if settings.work_dir is not None and os.path.isabs(name):
            name = os.path.relpath(name, settings.work_dir)
        return shlex.join(["exec", *(program or ()), name])


@dataclass(frozen=True)
class FinishedCode:
    """What code did: its exit code, its output, and the image that it ran in, None for no image."""

    exit_code: int
    logs: str
    image: str | None = None

    @classmethod
    def from_result(cls, result: CodeResult, block: CodeBlock, image: str | None) -> FinishedCode:
        """Return what AutoGen shows of `result`, which is the result of `block`.

        That is standard output, or the errors after a failure, without the path of the work folder.
        At the time limit it is what was written, and `TIMEOUT_MSG`.
        """
        if result.outcome == "timeout":
            return cls(1, _without_folder(result.output, result, block).lstrip("\n"), image)
        if result.exit_code == 0:
            return cls(0, result.stdout, image)
        has_only_failed = result.outcome == "error" and result.stderr
        logs = result.stderr if has_only_failed else result.output
        return cls(result.exit_code, _without_folder(logs, result, block), image)


def runnable_language(tag: str) -> Language | None:
    """Return the language named `tag`; None if it is unknown, or its code is not run by default."""
    language = find_language(tag)
    return language if language is not None and language.policy == "execute" else None


def _without_folder(logs: str, result: CodeResult, block: CodeBlock) -> str:
    """Return `logs` with the name of the code's file for its path, "" for a temporary file."""
    path = result.code_file if isinstance(result, CommandLineCodeResult) else None
    if path is None:
        return logs
    given = file_name(block.code)
    name = os.path.basename(path) if given is None else os.path.normpath(given)
    for visible in (path, f"{_VISIBLE_WORK_DIR}/{name}"):
        logs = logs.replace(visible, "" if given is None else name)
    return logs
