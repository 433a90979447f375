"""`cellblock chat` for a person at a terminal: approval by a key, Ctrl-C, pictures, saving."""

from __future__ import annotations

import json
import signal
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.chat.model_service import ModelService, Refusal, answer, model_service
from tests.cli.terminal_process import TerminalCommand
from tests.models.http_service import Reply

PROMPT = "you>"
QUESTION = "[a]lways"
HELLO = "Hello.\n\n```python\nprint('ou' + 'tput')\n```\n"

pytestmark = pytest.mark.usefixtures("sandbox")


@contextmanager
def chat(
    *replies: Reply | str,
    arguments: tuple[str, ...] = (),
    columns: int = 200,
    environment: dict[str, str] | None = None,
    refuse: Refusal = lambda _: None,
) -> Generator[tuple[TerminalCommand, ModelService]]:
    """Start the command at a terminal, with a model that sends `replies`."""
    with model_service(*replies, refuse=refuse) as service:
        model = ("--base-url", service.url, "--model", "local")
        with TerminalCommand(
            "chat", *model, *arguments, columns=columns, environment=environment
        ) as terminal:
            yield terminal, service


def test_y_runs_the_code_and_ctrl_d_ends_the_conversation() -> None:
    with chat(HELLO, "Done.") as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys("say hello\r")
        assert "print('ou' + 'tput')" in terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for("\noutput")
        terminal.wait_for("Done.")
        terminal.wait_for("2,000 tokens read, 400 written")
        terminal.wait_for(PROMPT)
        terminal.type_keys("\x04")
        assert terminal.wait() == 0


def test_code_is_highlighted_before_it_runs() -> None:
    with chat(HELLO, "Done.", arguments=("task",)) as (terminal, _):
        terminal.wait_for(QUESTION)
        assert "print('ou' + 'tput')" not in terminal.output  # colours are in between
        assert "print('ou' + 'tput')" in terminal.screen


def test_no_colours_where_they_are_unwanted() -> None:
    arguments, environment = ("task",), {"NO_COLOR": "1"}
    with chat(HELLO, arguments=arguments, environment=environment) as (terminal, _):
        terminal.wait_for(QUESTION)
        assert "print('ou' + 'tput')" in terminal.output


def test_n_with_a_reason_tells_the_model() -> None:
    with chat(HELLO, "I see.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys("n")
        terminal.wait_for("Why not?")
        terminal.type_keys("say goodbye instead\r")
        terminal.wait_for("I see.")
        assert service.messages()[-1][1].endswith("Reason: say goodbye instead")


def test_n_without_a_reason_gives_the_turn_back() -> None:
    with chat(HELLO, "I see.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys("n")
        terminal.wait_for("Why not?")
        terminal.type_keys("\r")
        terminal.wait_for("the code did not run")
        terminal.wait_for(PROMPT)
        assert service.request_count == 1
        assert "\noutput" not in terminal.screen


def test_other_keys_pasted_text_and_enter_are_no_answer() -> None:
    with chat(HELLO, "Done.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys("x\r \x1b[200~y\x1b[201~")
        terminal.press_until("n", "Why not?")
        assert service.request_count == 1


def test_letters_of_a_longer_text_are_no_answer() -> None:
    with chat(HELLO, "Done.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys("away yes")
        terminal.press_until("n", "Why not?")
        assert service.request_count == 1


def test_a_key_that_was_typed_before_the_question_is_no_answer() -> None:
    hanging = answer("Wait", hangs=True)
    with chat(HELLO, HELLO.replace("Hello", "Again"), hanging, arguments=("task",)) as (
        terminal,
        service,
    ):
        terminal.wait_for(QUESTION)
        terminal.press_until("y", "\noutput")
        terminal.type_keys("yyy")  # too early for the next question
        terminal.wait_for("Again")
        terminal.wait_for(QUESTION)
        terminal.press_until("n", "Why not?")
        assert service.request_count == 2


def test_a_runs_all_further_code_without_asking() -> None:
    second = "```sh\necho sec''ond\n```\n"
    with chat(HELLO, second, "Done.", arguments=("task",)) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("a")
        terminal.wait_for("\noutput")
        assert QUESTION not in terminal.wait_for("\nsecond")
        terminal.wait_for("Done.")


def test_once_asks_only_the_first_time() -> None:
    second = "```sh\necho sec''ond\n```\n"
    arguments = ("--approve", "once", "task")
    with chat(HELLO, second, "Done.", arguments=arguments) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for("\noutput")
        assert QUESTION not in terminal.wait_for("\nsecond")


def test_risky_asks_only_about_code_that_looks_risky() -> None:
    risky = "```python\nimport socket\n```\n"
    arguments = ("--approve", "risky", "task")
    with chat(HELLO, risky, arguments=arguments) as (terminal, _):
        assert QUESTION not in terminal.wait_for("\noutput")
        terminal.wait_for("line 1: network (imports socket)")
        terminal.wait_for(QUESTION)


def test_e_edits_the_code_and_the_model_is_told(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/tput/tside/ "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    environment = {"EDITOR": str(editor)}
    with chat(HELLO, "Done.", arguments=("task",), environment=environment) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys("e")
        terminal.wait_for("print('ou' + 'tside')")
        terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for("\noutside")
        terminal.wait_for("Done.")
        told = service.messages()[-1][1]
        assert "The code was changed before it ran" in told
        assert "print('ou' + 'tside')" in told
        assert told.endswith("outside\n")


def test_ctrl_c_in_the_editor_is_for_the_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nkill -INT $PPID\nsed -i s/tput/tside/ "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    environment = {"EDITOR": str(editor)}
    with chat(HELLO, "Done.", arguments=("task",), environment=environment) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("e")
        terminal.wait_for("print('ou' + 'tside')")
        terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for("Done.")


def test_an_editor_that_fails_is_reported_and_the_question_comes_again() -> None:
    environment = {"EDITOR": "false"}
    with chat(HELLO, arguments=("task",), environment=environment) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("e")
        terminal.wait_for("false ended with exit code 1")
        terminal.wait_for(QUESTION)


def test_a_line_says_that_the_model_has_not_begun_to_answer() -> None:
    with chat(answer("", hangs=True), arguments=("task",)) as (terminal, _):
        terminal.wait_for("waiting for the model; Ctrl-C stops")
        terminal.type_keys("\x03")
        terminal.wait_for(PROMPT)


def test_a_line_says_that_the_executor_has_not_started(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as engine:  # accepts a connection and never answers
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        environment = {"DOCKER_HOST": f"unix://{tmp_path}/engine"}
        arguments = ("--executor", "docker")
        with chat("Hello.", arguments=arguments, environment=environment) as (terminal, _):
            terminal.wait_for("starting the executor docker")


def test_ctrl_c_stops_the_model_and_gives_the_turn_back() -> None:
    with chat(answer("An endless ans", hangs=True), "Hi.", arguments=("task",)) as (
        terminal,
        service,
    ):
        terminal.wait_for("endless")
        terminal.type_keys("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for(PROMPT)
        terminal.type_keys("go on\r")
        terminal.wait_for("Hi.")
        assert service.messages()[-2:] == [("assistant", "An endless ans"), ("user", "go on")]


def test_ctrl_c_stops_the_code_and_the_model_learns_what_it_printed() -> None:
    code = "```python\nimport time\nprint('be' + 'gun', flush=True)\ntime.sleep(60)\n```\n"
    with chat(code, "Hi.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for("\nbegun")
        terminal.type_keys("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for(PROMPT)
        terminal.type_keys("why so slow?\r")
        terminal.wait_for("Hi.")
        assert "begun" in service.messages()[-2][1]
        assert service.messages()[-1][1] == "why so slow?"


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_ctrl_c_and_ctrl_d_at_the_question_give_the_turn_back(key: str) -> None:
    with chat(HELLO, arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.type_keys(key)
        terminal.wait_for("the code did not run")
        terminal.wait_for(PROMPT)
        assert service.request_count == 1


def test_variables_stay_from_one_turn_to_the_next() -> None:
    first, second = "```python\nx = 41\n```\n", "```python\nprint('x is', x + 1)\n```\n"
    arguments = ("--approve", "never", "task")
    with chat(first, "Done.", second, "It is.", arguments=arguments) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys("and now?\r")
        terminal.wait_for("\nx is 42")


def test_output_is_printed_while_the_code_runs() -> None:
    code = "```python\nimport time\nprint('be' + 'gun')\ntime.sleep(60)\n```\n"
    with chat(code, arguments=("--approve", "never", "task")) as (terminal, _):
        terminal.wait_for("\nbegun")


def test_code_can_ask_for_input() -> None:
    code = "```python\nname = input('Your name? ')\nprint('Hello,', name.upper())\n```\n"
    with chat(code, "Done.", arguments=("--approve", "never", "task")) as (terminal, _):
        terminal.wait_for("\nYour name?")
        terminal.type_keys("ada\r")
        terminal.wait_for("\nHello, ADA")


def test_a_plot_is_saved_and_its_path_is_shown(cwd: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: the extra `bench` has it")
    code = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 4])\nplt.show()\n```\n"
    with chat(code, "Done.", arguments=("--approve", "never", "task")) as (terminal, _):
        terminal.wait_for("created images/1.png")
        assert (cwd / "images" / "1.png").read_bytes().startswith(b"\x89PNG")


def test_a_terminal_that_can_show_pictures_shows_them() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: the extra `bench` has it")
    code = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 4])\nplt.show()\n```\n"
    arguments, environment = ("--approve", "never", "task"), {"TERM": "xterm-kitty"}
    with chat(code, "Done.", arguments=arguments, environment=environment) as (terminal, _):
        terminal.wait_for("created images/1.png")
        terminal.wait_for("Done.")
        assert "\x1b_Ga=T,f=100,q=2,m=1;iVBORw0KGgo" in terminal.output


def test_a_terminal_that_says_so_gets_sixels() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: the extra `bench` has it")
    code = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 4])\nplt.show()\n```\n"
    with chat(code, "Done.", arguments=("--approve", "never", "task")) as (terminal, _):
        terminal.type_keys("\x1b[?62;4;22c")  # the answer to the question for its attributes
        terminal.wait_for("created images/1.png")
        terminal.wait_for("Done.")
        assert '\x1bPq"1;1;' in terminal.output


def test_save_names_a_file_in_the_middle_of_a_conversation(cwd: Path) -> None:
    with chat("Hello.", "Bye.", arguments=("task",)) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":save notes.ipynb\r")
        terminal.wait_for("saved in notes.ipynb")
        terminal.type_keys("bye\r")
        terminal.wait_for("Bye.")
        terminal.wait_for(PROMPT)
        cells = json.loads((cwd / "notes.ipynb").read_text())["cells"]
        assert "".join(cells[-1]["source"]) == "### Assistant\n\nBye."


def test_commands_that_do_not_exist_are_no_messages() -> None:
    with chat("Hello.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":sve notes.md\r")
        terminal.wait_for("there is no command :sve")
        terminal.type_keys(":save notes.txt\r")
        terminal.wait_for(":save needs a file that ends with .md or .ipynb")
        assert service.request_count == 1


def test_a_resumed_conversation_shows_where_it_goes_on() -> None:
    arguments = ("--save", "notes.md", "What is it?")
    with chat("It is a test.", arguments=arguments) as (terminal, _):
        terminal.wait_for(PROMPT)
    with chat("Because.", arguments=("--resume", "notes.md")) as (terminal, service):
        terminal.wait_for("you> What is it?")
        terminal.wait_for("It is a test.")
        terminal.wait_for(PROMPT)
        terminal.type_keys("Why?\r")
        terminal.wait_for("Because.")
        assert [text for _, text in service.messages()[1:]] == [
            "What is it?",
            "It is a test.",
            "Why?",
        ]


def test_an_error_of_the_model_is_printed_and_the_conversation_goes_on() -> None:
    refused = Reply(body=b'{"error": {"message": "no such model"}}', status=404)
    with chat(refused, "Hi.", arguments=("task",)) as (terminal, _):
        terminal.wait_for("no such model")
        terminal.wait_for(PROMPT)
        terminal.type_keys("again\r")
        terminal.wait_for("Hi.")


def test_sigterm_ends_the_command() -> None:
    with chat("Hello.", arguments=("task",)) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM


def test_the_model_cannot_control_the_terminal() -> None:
    text = "\x1b]0;title\x07Look: ```\n\n```python\nprint(1)  # \u202egnp\r#\n```\n"
    with chat(text, arguments=("task",)) as (terminal, _):
        terminal.wait_for(QUESTION)
        assert "\x1b]0;title" not in terminal.output
        assert "\u202e" not in terminal.output
        assert "\ufffdgnp\ufffd#" in terminal.screen


@pytest.mark.parametrize("columns", [80, 200])
def test_prose_is_wrapped_at_words(columns: int) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    with chat(words, arguments=("task",), columns=columns) as (terminal, _):
        terminal.wait_for("word0")
        lines = ("word0" + terminal.wait_for("word59")).strip().split("\n")
        assert max(map(len, lines)) <= min(columns, 100)
        assert " ".join(lines).split() == words.split()[:-1]
        assert all(len(line) > min(columns, 100) - 10 for line in lines[:-1])


def test_the_demo_ends_if_its_code_may_not_run() -> None:
    with TerminalCommand("chat", "--demo", columns=80) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type_keys("n")
        terminal.wait_for("Why not?")
        terminal.type_keys("no reason\r")
        terminal.wait_for("the recording continues only with the recorded code")
        assert terminal.wait() == 0
