"""Console: pictures, live output, a terminal. See also the scenario `console`."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cellblock import CodeBlock, CodeResult
from cellblock.agents import (
    AgentMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    CodeOutputEvent,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    Response,
    TaskResult,
    TextMessage,
    ThoughtEvent,
    UserProxyAgent,
)
from cellblock.models import Image
from cellblock.teams import Console, RoundRobinGroupChat, UserInputManager

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# Code can display anything.
DISPLAYS: list[dict[str, Any]] = [
    {"image/png": f"{PNG[:40]}\n{PNG[40:]}\n"},
    {"image/png": "not Base64"},
    {"image/png": "\N{SNOWMAN}"},
    {"image/jpeg": 3},
    {"text/plain": "text"},
]
CODE = CodeBlock("print(1)", "python")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(
    messages: Sequence[AgentMessage], out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Print `messages` to `out`, and return what was printed without colours."""

    async def stream() -> AsyncGenerator[AgentMessage | TaskResult, None]:
        for message in messages:
            yield message
        yield TaskResult(messages=messages)

    monkeypatch.setattr(sys, "stdout", out)
    asyncio.run(Console(stream()))
    return re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())


def code_run(output: str, exit_code: int = 0, **fields: Any) -> list[AgentMessage]:
    pieces = [
        CodeOutputEvent(content=piece, source="e", block=0, stream="stdout")
        for piece in output.splitlines(keepends=True)
    ]
    result = CodeResult(exit_code, output, **fields)
    return [*pieces, CodeExecutionEvent(source="e", retry_attempt=0, result=result)]


def test_output_is_printed_once_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = show(code_run("1\n2\n"), io.StringIO(), monkeypatch)
    assert printed == "---------- CodeExecutionEvent (e) ----------\n1\n2\n\n"


FAILED = "The script ran, then exited with an error (POSIX exit code: 3)"
NOTE = "Files: a.txt"


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("1\n2\n", ""),
        (f"{FAILED}\nIts output was:\n1\n2\n", f"{FAILED}\n"),
        (f"1\n2\n\n{NOTE}", f"{NOTE}\n"),
        ("other", "---------- {} (e) ----------\nother\n"),
    ],
)
@pytest.mark.parametrize("as_event", [True, False])
def test_a_terminal_shows_output_while_it_comes_and_not_again(
    said: str, rest: str, as_event: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    *pieces, _ = code_run("1\n2\n")
    message = code_run(said)[-1] if as_event else TextMessage(content=said, source="e")
    printed = show([*pieces, message], Terminal(), monkeypatch)
    rest = rest.format(type(message).__name__)
    assert printed == f"---------- CodeExecutionEvent (e) ----------\n1\n2\n\n{rest}"


def test_a_terminal_shows_code_in_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = "Look:\n```python\nprint('x')\n```\nDone."
    message = CodeGenerationEvent(content=text, source="c", retry_attempt=0, code_blocks=[CODE])
    terminal = Terminal()
    printed = show([message], terminal, monkeypatch)
    assert re.search(r"\x1b\[[\d;]*mprint", terminal.getvalue())
    lines = [line.rstrip() for line in printed.splitlines()]
    header = "---------- CodeGenerationEvent (c) ----------"
    assert lines == [header, "Look:", "print('x')", "Done."]


def test_escape_sequences_of_others_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = "\x1b]0;title\a```\n\x1b[2J\n```\n\x1b[2J"
    messages: list[AgentMessage] = [
        TextMessage(content=bad, source="\x1b[2J"),
        ModelClientStreamingChunkEvent(content=bad, source="c"),
    ]
    terminal = Terminal()
    show(messages, terminal, monkeypatch)
    assert "\x1b[2J" not in terminal.getvalue()
    assert "\x1b]" not in terminal.getvalue()


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_pictures_are_saved_and_their_paths_printed(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    image = Image.from_base64(PNG)
    message = MultiModalMessage(content=["see", image, image], source="a")
    printed = show([message, *code_run("1\n", displays=DISPLAYS)], out, monkeypatch)
    paths = [Path(path) for path in re.findall(r"^\[Image: (.*)\]$", printed, re.MULTILINE)]
    assert [path.name for path in paths] == ["image-1.png", "image-2.png", "image-3.png"]
    assert {path.read_bytes() for path in paths} == {image.data}


def test_iterm_shows_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")
    terminal = Terminal()
    message = MultiModalMessage(content=[Image.from_base64(PNG)], source="a")
    show([message], terminal, monkeypatch)
    assert f"\x1b]1337;File=inline=1:{PNG}\a" in terminal.getvalue()


def test_a_thought_between_pieces_and_their_message_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = TextMessage(content="one two", source="a")
    pieces = [
        ModelClientStreamingChunkEvent(content=piece, source="a", full_message_id=message.id)
        for piece in ("one ", "two")
    ]
    thought = ThoughtEvent(content="hm", source="a")
    printed = show([*pieces, thought, message], io.StringIO(), monkeypatch)
    assert printed == (
        "---------- ModelClientStreamingChunkEvent (a) ----------\none two\n"
        "---------- ThoughtEvent (a) ----------\nhm\n"
    )


def test_an_answer_after_its_pieces_is_on_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream() -> AsyncGenerator[AgentMessage | Response, None]:
        yield ModelClientStreamingChunkEvent(content="one", source="a")
        yield Response(chat_message=TextMessage(content="one", source="a"))

    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    asyncio.run(Console(stream()))
    assert out.getvalue() == (
        "---------- ModelClientStreamingChunkEvent (a) ----------\none\n"
        "---------- a ----------\none\n"
    )


def test_a_console_that_cannot_print_closes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed: list[bool] = []

    async def stream() -> AsyncGenerator[AgentMessage | TaskResult, None]:
        try:
            yield TextMessage(content="one", source="a")
            yield TaskResult(messages=[])
        finally:
            closed.append(True)

    async def scenario() -> None:
        running = stream()
        with pytest.raises(BrokenPipeError):
            await Console(running)
        assert closed

    monkeypatch.setattr(sys, "stdout", Broken())
    asyncio.run(scenario())


def test_the_user_is_asked_after_everything_before_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    seen: list[str] = []

    def answer(prompt: str) -> str:
        seen.append(out.getvalue())
        return "fine"

    manager = UserInputManager(answer)
    user = UserProxyAgent("user", input_func=manager.get_wrapped_callback())
    team = RoundRobinGroupChat([user], max_turns=2)
    asyncio.run(Console(team.run_stream(task="how are you?"), user_input_manager=manager))
    assert seen[0].endswith("how are you?\n")
    assert seen[1].endswith("fine\n")


def test_only_a_stream_is_printed() -> None:
    agent: Any = UserProxyAgent("user")
    for wrong in (agent, agent.run(task="x")):
        with pytest.raises(ValueError, match=r"prints a stream, not a .*Pass run_stream"):
            asyncio.run(Console(wrong))
