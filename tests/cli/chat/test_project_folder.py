"""A repository is the work folder after one question, and its AGENTS.md is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chat.test_terminal import PROMPT, chat

pytestmark = pytest.mark.usefixtures("sandbox")

QUESTION = "This folder is a Git repository. Shall the code work in it?"


def test_a_repository_is_the_work_folder_after_one_question(cwd: Path) -> None:
    (cwd / ".git").mkdir()
    (cwd / "AGENTS.md").write_text("Answer in French.\n")
    code = "```sh\ncat AGENTS.md | tr a-z A-Z\n```"
    for is_first in (True, False):
        arguments = ("--approve", "never", "--no-save", "task")
        with chat(code, "Bon.", arguments=arguments) as (terminal, service):
            if is_first:
                terminal.wait_for(QUESTION)
                terminal.wait_for("[Y/n]")
                terminal.type_keys("\r")
            before = terminal.wait_for("--- AGENTS.md is read")
            assert QUESTION not in before
            terminal.wait_for("work folder .")
            terminal.wait_for("ANSWER IN FRENCH.")
            terminal.wait_for(PROMPT)
            assert service.messages()[0][1].endswith("for you:\n\nAnswer in French.")


def test_the_answer_no_keeps_the_folder_of_code_apart(cwd: Path) -> None:
    (cwd / ".git").mkdir()
    with chat("Hello.", arguments=("--no-save",)) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.wait_for("[Y/n]")
        terminal.type_keys("n\r")
        terminal.wait_for("work folder coding")
