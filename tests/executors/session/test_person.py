"""What a session does for a person who types: completions, and answers that nobody may see."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import CodeBlock, Output, SandboxSessionServer
from cellblock.executors.run_options import RunOptions
from cellblock.executors.session.settings import InputPrompt
from tests.executors.session.live_session import LiveSession, open_session, run_async


def test_a_callback_learns_which_answer_is_hidden(shared: SandboxSessionServer) -> None:
    def answer(prompt: InputPrompt) -> str:
        return f"{prompt}{prompt.hidden}"

    with open_session(shared, input_callback=answer) as live:
        code = "import getpass\ninput('a '), getpass.getpass('b ')"
        assert live.run_ok(code) == "('a False', 'b True')"


def test_a_callback_learns_how_much_happened_before_it(shared: SandboxSessionServer) -> None:
    counts, codes = (
        list[int](),
        (
            "print('a', end=''); input()",  # one write, and so one event
            "print('b', end=''); display('c'); input()",
        ),
    )

    def answer(prompt: InputPrompt) -> str:
        counts.append(prompt.event_count)
        return ""

    async def read(live: LiveSession) -> list[int]:
        done = list[int]()
        for code in codes:
            events = [
                each async for each in live.executor.execute_stream([CodeBlock(code, "python")])
            ]
            is_last = [isinstance(each, Output) and "''" in each.text for each in events]
            done.append(is_last.index(True) - 1)  # without Started; the value of input() comes next
        return done

    with open_session(shared, input_callback=answer) as live:
        assert run_async(read(live)) == counts
        assert counts[0] == 1 < counts[1]


def test_the_time_limit_does_not_run_while_a_person_is_asked(
    shared: SandboxSessionServer,
) -> None:
    async def answer(_prompt: InputPrompt) -> str:
        await asyncio.sleep(1.2)  # longer than the limit
        return "an answer"

    with open_session(shared, timeout=1, input_callback=answer) as live:
        live.executor.default_options = RunOptions(input_is_timed=False)
        assert live.run_ok("input()") == "'an answer'"
        result = live.run("input(); print('goes on', flush=True)\nwhile True: pass")
        assert (result.outcome, result.limit) == ("timeout", "wall_seconds")
        assert "goes on" in result.output


def test_errors_of_input_show_only_frames_of_the_code(shared: SandboxSessionServer) -> None:
    with open_session(shared) as live:
        output = live.run("def ask():\n    return input('name? ')\nask()").output
        assert "return input('name? ')" in output
        assert "EOFError" in output
        assert "_ask_input" not in output
        assert "cellblock/runtime" not in output


@pytest.mark.parametrize(
    ("code", "start", "match"),
    [
        ("numbers.rev", 8, "reverse"),
        ("table['pri", 7, "price"),
        ("open('data", 6, "data.csv"),
        ("print(numb", 6, "numbers"),
        ("no_such_name.x", 14, None),
    ],
)
def test_code_can_be_completed(
    code: str, start: int, match: str | None, shared: SandboxSessionServer
) -> None:
    with open_session(shared) as live:
        live.run_ok("numbers, table = [1], {'price': 2}; open('data.csv', 'w').close()")
        matches = [] if match is None else [match]
        assert run_async(live.executor.complete(code)) == (start, matches)
        inside = f"x = 1\n{code}\ny = 2"
        assert run_async(live.executor.complete(inside, 6 + len(code))) == (start + 6, matches)
