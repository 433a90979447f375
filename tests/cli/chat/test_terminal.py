"""`cellblock chat` for a person at a terminal: approval by a key, Ctrl-C, pictures, saving."""

from __future__ import annotations

import io
import signal
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.chat.model_service import ModelService, Refusal, answer, ask, model_service
from tests.cli.terminal_process import TerminalCommand
from tests.models.http_service import Reply
from tests.suite.tiers import exhaustive

PROMPT = "you>"
QUESTION = "[a]lways"
HELLO = "Hello.\n\n```python\nprint('ou' + 'tput')\n```\n"
SECOND = "```sh\necho sec''ond\n```\n"
LENGTHS = {
    "Run this (1 line)?": "```python\nprint(1)\n```\n",
    "Run this (202 lines, 5 pages)?": "```python\nprint(1)\n" + "\n" * 200 + "print(2)\n```\n",
    "Run these 2 blocks (2 lines)?": "```python\nprint(1)\n```\nand\n```sh\necho 2\n```\n",
}

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


def say(terminal: TerminalCommand, text: str, *shown: str) -> None:
    """Type a line when the command asks for one, and wait for what is shown after it."""
    terminal.wait_for(PROMPT)
    terminal.type_keys(f"{text}\r")
    for each in shown:
        terminal.wait_for(each)


def press(terminal: TerminalCommand, key: str, *shown: str) -> None:
    """Press a key when the command asks whether code may run, and wait for what is shown."""
    terminal.wait_for(QUESTION)
    terminal.type_keys(key)
    for each in shown:
        terminal.wait_for(each)


def make_editor(path: Path, *lines: str) -> dict[str, str]:
    """Write a program that edits the file it is given. Return the variable that names it."""
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"EDITOR": str(path)}


def test_y_runs_the_code_and_ctrl_d_ends_the_conversation() -> None:
    with chat(HELLO, "Done.") as (terminal, _):
        say(terminal, "say hello")
        assert "print('ou' + 'tput')" in terminal.wait_for(QUESTION)
        assert "print('ou' + 'tput')" not in terminal.output  # colours are in between
        terminal.type_keys("y")
        for shown in ("\noutput", "Done.", "2,000 tokens read, 400 written", PROMPT):
            terminal.wait_for(shown)
        terminal.type_keys("\x04")
        assert terminal.wait() == 0


def test_no_colours_where_they_are_unwanted() -> None:
    arguments, environment = ("task",), {"NO_COLOR": "1"}
    with chat(HELLO, arguments=arguments, environment=environment) as (terminal, _):
        terminal.wait_for(QUESTION)
        assert "print('ou' + 'tput')" in terminal.output


def test_n_with_a_reason_tells_the_model() -> None:
    with chat(HELLO, "I see.", arguments=("task",)) as (terminal, service):
        press(terminal, "n", "Why not?")
        terminal.type_keys("say goodbye instead\r")
        terminal.wait_for("I see.")
        assert service.messages()[-1][1].endswith("Reason: say goodbye instead")


@pytest.mark.parametrize("key", exhaustive(["n", "\x03", "\x04"]))
def test_a_refusal_without_a_reason_gives_the_turn_back(key: str) -> None:
    with chat(HELLO, "I see.", arguments=("task",)) as (terminal, service):
        press(terminal, key)
        if key == "n":
            terminal.wait_for("Why not?")
            terminal.type_keys("\r")
        terminal.wait_for("the code did not run")
        terminal.wait_for(PROMPT)
        assert service.request_count == 1
        assert "\noutput" not in terminal.screen


@pytest.mark.slow
def test_the_question_says_how_long_the_code_is() -> None:  # blank lines can hide its start
    faults: list[str] = []
    for question, block in LENGTHS.items():
        with chat(block, arguments=("task",)) as (terminal, _):
            faults += [] if question in terminal.wait_for(QUESTION) else [question]
    assert faults == []


def test_other_keys_pasted_or_longer_text_and_enter_are_no_answer() -> None:
    for keys in ("x\r \x1b[200~y\x1b[201~", "away yes"):
        with chat(HELLO, "Done.", arguments=("task",)) as (terminal, service):
            press(terminal, keys)
            terminal.press_until("n", "Why not?")
            assert service.request_count == 1, keys


def test_a_key_that_was_typed_before_the_question_is_no_answer() -> None:
    replies = (HELLO, HELLO.replace("Hello", "Again"), answer("Wait", hangs=True))
    with chat(*replies, arguments=("task",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.press_until("y", "\noutput")
        terminal.type_keys("yyy")  # too early for the next question
        terminal.wait_for("Again")
        terminal.wait_for(QUESTION)
        terminal.press_until("n", "Why not?")
        assert service.request_count == 2


@pytest.mark.parametrize(
    ("arguments", "key"), [(("task",), "a"), (("--approve", "once", "task"), "y")]
)
def test_one_answer_can_be_for_all_further_code(arguments: tuple[str, ...], key: str) -> None:
    with chat(HELLO, SECOND, "Done.", arguments=arguments) as (terminal, _):
        press(terminal, key, "\noutput")
        assert QUESTION not in terminal.wait_for("\nsecond")
        terminal.wait_for("Done.")


def test_risky_asks_only_about_code_that_looks_risky() -> None:
    risky = "```python\nimport socket\n```\n"
    arguments = ("--approve", "risky", "task")
    with chat(HELLO, risky, arguments=arguments) as (terminal, _):
        assert QUESTION not in terminal.wait_for("\noutput")
        terminal.wait_for("line 1: network (imports socket)")
        terminal.wait_for(QUESTION)


@pytest.mark.parametrize("first", exhaustive(["kill -INT $PPID", ""]))
def test_e_edits_the_code_and_the_model_is_told(first: str, tmp_path: Path) -> None:
    # Ctrl-C in the editor is for the editor.
    environment = make_editor(tmp_path / "editor", first, 'sed -i s/tput/tside/ "$1"')
    with chat(HELLO, "Done.", arguments=("task",), environment=environment) as (terminal, service):
        press(terminal, "e", "print('ou' + 'tside')")
        press(terminal, "y", "\noutside", "Done.")
        told = service.messages()[-1][1]
        assert "The code was changed before it ran" in told
        assert "print('ou' + 'tside')" in told
        assert told.endswith("outside\n")


def test_an_editor_that_fails_is_reported_and_the_question_comes_again() -> None:
    environment = {"EDITOR": "false"}
    with chat(HELLO, arguments=("task",), environment=environment) as (terminal, _):
        press(terminal, "e", "false ended with exit code 1", QUESTION)


def test_ctrl_c_stops_the_model_and_gives_the_turn_back() -> None:
    replies = (answer("", hangs=True), answer("An endless ans", hangs=True), "Hi.")
    with chat(*replies, arguments=("task",)) as (terminal, service):
        terminal.wait_for("waiting for the model; Ctrl-C stops")
        terminal.type_keys("\x03")
        say(terminal, "again", "endless")
        terminal.type_keys("\x03")
        terminal.wait_for("stopped")
        say(terminal, "go on", "Hi.")
        assert service.messages()[-2:] == [("assistant", "An endless ans"), ("user", "go on")]


def test_a_line_says_that_the_executor_has_not_started(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as engine:  # accepts a connection and never answers
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        environment = {"DOCKER_HOST": f"unix://{tmp_path}/engine"}
        arguments = ("--executor", "docker")
        with chat("Hello.", arguments=arguments, environment=environment) as (terminal, _):
            terminal.wait_for("starting the executor docker")


def test_ctrl_c_stops_the_code_and_the_model_learns_what_it_printed() -> None:
    code = "```python\nimport time\nprint('be' + 'gun')\ntime.sleep(60)\n```\n"
    with chat(code, "Hi.", arguments=("task",)) as (terminal, service):
        press(terminal, "y", "\nbegun")
        terminal.type_keys("\x03")
        terminal.wait_for("stopped")
        say(terminal, "why so slow?", "Hi.")
        assert "begun" in service.messages()[-2][1]
        assert service.messages()[-1][1] == "why so slow?"


def test_code_can_ask_for_input_and_variables_stay_from_one_turn_to_the_next() -> None:
    first = "```python\nname = input('Your name? ')\nprint('Hello,', name.upper())\n```\n"
    second = "```python\nprint('Bye,', name)\n```\n"
    arguments = ("--approve", "never", "task")
    with chat(first, "Done.", second, "It is.", arguments=arguments) as (terminal, _):
        terminal.wait_for("\nYour name?")
        terminal.type_keys("ada\r")
        terminal.wait_for("\nHello, ADA")
        say(terminal, "and now?", "\nBye, ada")


@pytest.mark.parametrize(
    ("name", "attributes", "picture"),
    exhaustive(
        [
            ("xterm-kitty", "", "\x1b_Ga=T,f=100,q=2,m=0;iVBORw0KGgo"),
            # The answer to the question for its attributes.
            ("xterm", "\x1b[?62;4;22c", '\x1bPq"1;1;'),
        ]
    ),
)
def test_a_picture_is_saved_and_shown_by_a_terminal_that_can(
    name: str, attributes: str, picture: str, cwd: Path
) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is missing: the extra `bench` has it")
    data = io.BytesIO()
    pillow.new("RGB", (9, 9)).save(data, format="PNG")
    code = f"```python\nfrom IPython.display import Image\nImage({data.getvalue()!r})\n```\n"
    arguments, environment = ("--approve", "never", "task"), {"TERM": name}
    with chat(code, "Done.", arguments=arguments, environment=environment) as (terminal, _):
        terminal.type_keys(attributes)
        terminal.wait_for("created images/1.png")
        terminal.wait_for("Done.")
        assert picture in terminal.output
    assert (cwd / "images" / "1.png").read_bytes() == data.getvalue()


def test_a_resumed_conversation_shows_where_it_goes_on() -> None:
    with model_service("It is a test.") as service:
        ask(service, "--save", "notes.md", "What is it?")
    with chat("Because.", arguments=("--resume", "notes.md")) as (terminal, service):
        terminal.wait_for("you> What is it?")
        terminal.wait_for("It is a test.")
        say(terminal, "Why?", "Because.")
        texts = [text for _, text in service.messages()[1:]]
        assert texts == ["What is it?", "It is a test.", "Why?"]


def test_an_error_of_the_model_is_printed_and_sigterm_ends_the_conversation() -> None:
    refused = Reply(body=b'{"error": {"message": "no such model"}}', status=404)
    with chat(refused, "Hi.", arguments=("task",)) as (terminal, _):
        terminal.wait_for("no such model")
        say(terminal, "again", "Hi.", PROMPT)
        terminal.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM


def test_the_model_cannot_control_the_terminal() -> None:
    text = "\x1b]0;title\x07Look: ```\n\n```python\nprint(1)  # \u202egnp\r#\n```\n"
    with chat(text, arguments=("task",)) as (terminal, _):
        terminal.wait_for(QUESTION)
        assert "\x1b]0;title" not in terminal.output
        assert "\u202e" not in terminal.output
        assert "\ufffdgnp\n#" in terminal.screen


@pytest.mark.parametrize("columns", exhaustive([80, 200]))
def test_prose_is_wrapped_at_words(columns: int) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    with chat(words, arguments=("task",), columns=columns) as (terminal, _):
        terminal.wait_for("word0")
        lines = ("word0" + terminal.wait_for("word59")).strip().split("\n")
        assert max(map(len, lines)) <= min(columns, 100)
        assert " ".join(lines).split() == words.split()[:-1]
        assert all(len(line) > min(columns, 100) - 10 for line in lines[:-1])


def test_a_long_message_that_was_typed_has_whole_words() -> None:
    words = " ".join(f"word{number}" for number in range(30))
    with chat("Hello.", columns=80) as (terminal, _):
        say(terminal, words, "Hello.")
        shown = terminal.screen.rpartition("you> ")[2].partition("\nHello.")[0]
        assert shown.split() == words.split()
        assert max(map(len, f"you> {shown}".split("\n"))) <= 80


def test_the_demo_ends_if_its_code_may_not_run() -> None:
    with TerminalCommand("chat", "--demo", columns=80) as terminal:
        press(terminal, "n", "Why not?")
        terminal.type_keys("no reason\r")
        terminal.wait_for("the recording continues only with the recorded code")
        assert terminal.wait() == 0
