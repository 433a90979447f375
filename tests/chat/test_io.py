"""Where chats print and read, and that colours are for terminals."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from cellblock.chat import ConversableAgent, IOConsole, IOStream
from tests.chat.console import ScriptedConsole, console

CHAT = """
from cellblock.chat import ConversableAgent
a = ConversableAgent("a", llm_config=False)
a.send("hi", ConversableAgent("b", llm_config=False))
"""


def test_the_console_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(IOStream.get_default(), IOConsole)
    IOStream.get_default().print("a", "b", sep="-", end="!\n")
    assert capsys.readouterr().out == "a-b!\n"


def test_a_stream_is_the_default_within_its_block() -> None:
    with console() as outer:
        with console() as inner:
            IOStream.get_default().print("x")
        with IOStream.set_default(None):
            assert isinstance(IOStream.get_default(), IOConsole)
        assert IOStream.get_default() is outer
    assert (inner.text, outer.text) == ("x\n", "")


def test_a_stream_can_be_the_default_of_the_process() -> None:
    before, stream = IOStream.get_global_default(), ScriptedConsole()
    IOStream.set_global_default(stream)
    try:
        assert IOStream.get_default() is stream
    finally:
        IOStream.set_global_default(before)


def _printed_on_terminal(environment: dict[str, str]) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CHAT], stdout=follower, env={**os.environ, **environment}
    ) as process:
        os.close(follower)
        text = b""
        while True:
            try:
                text += os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(30) == 0
    os.close(leader)
    return text.decode()


def test_names_have_colours_on_a_terminal_only() -> None:
    assert "\033[33ma\033[0m (to b):" in _printed_on_terminal({"NO_COLOR": ""})
    assert "\na (to b):" in "\n" + _printed_on_terminal({"NO_COLOR": "1"})


def test_standard_output_may_be_an_object_that_only_writes() -> None:
    class Copy:  # scripts replace standard output to keep what is printed
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str, /) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    copy = Copy()
    with contextlib.redirect_stdout(copy):
        ConversableAgent("a", llm_config=False).send("hi", ConversableAgent("b", llm_config=False))
    assert copy.text == "a (to b):\n\nhi\n\n" + "-" * 80 + "\n"
