"""The folder of a project: whether code works in it, and what its AGENTS.md says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from ...environments.exposed_folder import exposure_of
from ...runtime.linux.safe_folder import SafeFolder
from ..options.settings import WORK_DIR
from ..repl.history import history_file
from .settings import ChatSettings

RULES = "AGENTS.md"
_MAX_RULES_BYTES = 32 << 10
_QUESTION = (
    "This folder is a Git repository. Shall the code work in it?\n"
    f":undo takes changes back. Otherwise the code works in the folder {WORK_DIR}."
)


def with_project_folder(settings: ChatSettings, environment: Mapping[str, str]) -> ChatSettings:
    """Return `settings` with the current folder as work folder, if it is a repository.

    The person is asked once for each folder. A folder that was chosen, and one that has more than a
    project, stays. Raise `click.Abort` on Ctrl-C.
    """
    is_project = os.path.lexists(".git") and exposure_of(".") is None
    if settings.work_dir is not None or settings.demo or not is_project:
        return settings
    answers = _Answers(environment)
    is_wanted = answers.get()
    if is_wanted is None:
        is_wanted = click.confirm(_QUESTION, default=True, err=True)
        answers.save(is_wanted)
    return replace(settings, work_dir=".") if is_wanted else settings


class _Answers:
    """The answers for all folders, in a file below the user's state folder."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = os.path.realpath(".")
        try:
            self._path: Path | None = history_file(environment).with_name("work_folders.json")
            found: object = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, RuntimeError, ValueError):
            found = {}
        self._answers = cast(dict[str, object], found) if isinstance(found, dict) else {}

    def get(self) -> bool | None:
        """Return the answer for the current folder; None if there is none."""
        answer = self._answers.get(self._folder)
        return answer if isinstance(answer, bool) else None

    def save(self, answer: bool) -> None:
        """Remember the answer. Where that fails, the person is asked again."""
        text = json.dumps({**self._answers, self._folder: answer}, indent=1)
        try:
            if self._path is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with SafeFolder.at(self._path.parent) as folder:
                    with folder.replace_file(self._path.name) as file:
                        file.write(text.encode(errors="surrogateescape"))
        except OSError as error:
            click.echo(f"--- the answer is not saved: {error}", err=True)


def read_rules(folder: str) -> tuple[str, str]:
    """Return the text of AGENTS.md in `folder`, "" without one, and a line about it."""
    try:
        with SafeFolder.at(os.path.expanduser(folder)) as opened, opened.read_file(RULES) as file:
            data = file.read(_MAX_RULES_BYTES + 1)
    except FileNotFoundError:
        return "", ""
    except OSError as error:
        return "", f"{RULES} is not read: {error.strerror}"
    is_cut = len(data) > _MAX_RULES_BYTES
    text = data[:_MAX_RULES_BYTES].decode(errors="replace").strip()
    note = f"{RULES} is read" if text else ""
    return text, f"{note}: the first {_MAX_RULES_BYTES >> 10} KiB" if is_cut else note
