"""People at a real terminal, in asynchronous chats."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

CHAT = """
import asyncio
from cellblock.chat import ConversableAgent
a = ConversableAgent("a", llm_config=False, human_input_mode="NEVER")
h = ConversableAgent("h", llm_config=False, human_input_mode="ALWAYS")
try:
    asyncio.run(a.a_initiate_chat(h, message="hi", max_turns=1))
finally:
    print("STORED", [each["content"] for each in h.chat_messages[a]])
"""


# Standard output on which a thread still writes when its text can be read.
SLOW_OUTPUT = """
import io, sys, threading, time
class Slow(io.FileIO):
    def write(self, data):
        count = super().write(data)
        if threading.current_thread() is not threading.main_thread(): time.sleep(1)
        return count
sys.stdout = io.TextIOWrapper(io.BufferedWriter(Slow(1, "w")))
"""


@contextmanager
def chat_at_prompt(chat: str = CHAT) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """Run the chat until it asks; yield the process and the terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", chat], stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(follower)
        try:
            assert process.stdout is not None
            text = b""
            while b"end the conversation: " not in text:
                chunk = os.read(process.stdout.fileno(), 4096)
                assert chunk, process.communicate()[1].decode()
                text += chunk
            yield process, leader
        finally:
            process.kill()
            os.close(leader)


def test_a_typed_line_is_the_reply() -> None:
    with chat_at_prompt() as (process, terminal):
        os.write(terminal, "größer bitte\n".encode())
        output, _ = process.communicate()
    assert "STORED ['hi', 'größer bitte']" in output.decode()
    assert process.returncode == 0


def test_the_end_of_input_at_a_terminal_ends_the_chat_with_an_error() -> None:
    with chat_at_prompt() as (process, terminal):
        os.write(terminal, b"\x04")
        output, errors = process.communicate()
    assert b"STORED ['hi']" in output
    assert b"EOFError" in errors


@pytest.mark.slow
def test_ctrl_c_ends_the_chat_at_once_and_the_messages_are_still_there() -> None:
    with chat_at_prompt() as (process, _):
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    assert b"STORED ['hi']" in output
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


@pytest.mark.slow
def test_ctrl_c_while_the_prompt_is_still_written_loses_no_output() -> None:
    with chat_at_prompt(SLOW_OUTPUT + CHAT) as (process, _):
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    assert b"STORED ['hi']" in output, errors
    assert process.returncode == -signal.SIGINT
