"""What is longer than the screen is folded, and can be shown whole."""

from __future__ import annotations

import pytest

from cellblock.cli.chat.folding import FoldedOutput, head_lines
from tests.cli.chat.test_terminal import QUESTION, chat, say

pytestmark = pytest.mark.usefixtures("sandbox")

LONG = "```python\n" + "x = 1\n" * 90 + "for n in range(1000):\n    print('line', n)\n```\n"


def test_long_code_and_output_are_folded_and_shown_on_request() -> None:
    environment = {"NO_COLOR": "1"}
    with chat(LONG, "Done.", arguments=("task",), environment=environment) as (terminal, _):
        shown = terminal.wait_for(QUESTION)
        assert shown.count("x = 1") < 50
        assert "lines are folded: :show shows all" in shown
        terminal.press_until("y", "```python")  # what was not shown is not approved
        assert terminal.wait_for(QUESTION).count("x = 1") == 90
        terminal.press_until("y", "lines are folded: :show shows all")
        for shown in ("line 999", "Done."):
            terminal.wait_for(shown)
        assert "line 500" not in terminal.screen
        say(terminal, ":show", "line 500", "line 999")


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_output_is_folded_by_rows_of_the_screen(size: int) -> None:
    """All of a short output is shown, and of a long one the head and the tail, in order."""
    rows = head_lines(24)
    for text, is_folded in (
        ("a\n" * rows, False),
        ("a\n" * (rows - 1) + "b" * 80 + "\n", False),
        ("".join(f"{n}\n" for n in range(500)), True),
        ("b" * 5000, True),
        ("a\n" * rows + "b" * 100_000, True),
    ):
        fold = FoldedOutput(24, 80)
        shown = "".join(fold.add(text[i : i + size]) for i in range(0, len(text), size))
        folded, tail = fold.end()
        assert text.startswith(shown)
        assert text.endswith(tail.rpartition("\u2026")[2])
        assert (shown + tail != text) == is_folded
        assert len(shown) + len(tail) < 80 * (rows + 12)
        assert folded == (500 - rows - 6 if text.startswith("0") else 0)
