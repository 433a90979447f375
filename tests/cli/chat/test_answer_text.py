"""How the answer of a model looks in a terminal."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from cellblock.cli.chat.answer_text import AnswerText
from cellblock.visible_text import visible


def shown(text: str, width: int = 40, piece: int = 3) -> str:
    """Return what is printed of `text`, which arrives in pieces."""
    answer = AnswerText(width)
    pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
    texts = [part for each in pieces for part in answer.add(each)]
    return "".join(part.plain for part in [*texts, *answer.end()])


def styles(text: str) -> list[str]:
    """Return the styles of the spans and texts that are printed."""
    answer = AnswerText(80)
    texts = [*answer.add(text), *answer.end()]
    return [str(span.style) for part in texts for span in part.spans] + [
        str(part.style) for part in texts if part.style
    ]


def test_what_fits_is_printed_as_it_is() -> None:
    texts = [
        "A short line.\n",
        "# A title\n\nText\nand more.\n",
        "- one\n- two\n  still two\n1. three\n",
        "```python\nx = 1\n\n    y = '''a\nb'''\n```\nAfter.\n",
        "~~~~sh\n```\necho\n~~~~\nAfter.\n",
        "| a | b |\n|---|---|\n| a long cell of a table is not wrapped | b |\n",
        "`code` at the start, and ``more``\n",
        "  ```python\n  x = 1\n  ```\n",
        "a * b\n\n\n\nc\n",
        "日本語のテキスト\n",
    ]
    cases = [(text, piece) for text in texts for piece in (1, 2, 7, 1000)]
    assert [case for case in cases if shown(case[0], piece=case[1]) != case[0]] == []
    for piece in (1, 2, 7, 1000):
        assert shown("a\r\nb\rc\r\n\r\r", piece=piece) == "a\nb\nc\n\n\n"


def test_only_tables_and_code_are_longer_than_the_terminal_is_wide() -> None:
    wrapped = {
        "one two three four five six seven eight": "one two three four\nfive six seven eight\n",
        "- one two three four five six": "- one two three four\n  five six\n",
        "10. one two three four five": "10. one two three\n    four five\n",
        "- a\n    - one two three four\n": "- a\n    - one two three\n      four\n",
        "- a\n\n    one two three four five\n": "- a\n\n    one two three\n    four five\n",
        "# one two three four five\n": "# one two three four\nfive\n",
        "a\n\n    one_two() three four five\n": "a\n\n    one_two() three four five\n",
        "```\na\n```<end>\none two three four five": "```\na\n```<end>\none two three four\nfive\n",
        "# 日本語の 日本語の 日本語の": "# 日本語の 日本語の\n日本語の\n",
        # A line that does not fit goes on with the next one.
        "one two three four five\nsix\n\nnew\n- a\n": "one two three four\nfive six\n\nnew\n- a\n",
        # Wide characters count twice.
        "日本語の 日本語の 日本語の": "日本語の 日本語の\n日本語の\n",
    }
    for piece in (1, 3, 1000):
        assert {text: shown(text, 20, piece) for text in wrapped} == wrapped


def test_the_middle_of_a_long_block_is_folded() -> None:
    def folded(lines: int) -> list[str]:
        answer = AnswerText(80, code_lines=4)
        code = "".join(f"{number}\n" for number in range(lines))
        return "".join(
            text.plain for text in [*answer.add(f"```python\n{code}```\nend"), *answer.end()]
        ).split("\n")[1:-3]

    assert folded(10) == list("0123456789")
    note = "--- 3 lines are folded: :show shows all"
    assert folded(13) == [*"0123", note, *"789", "10", "11", "12"]


def test_what_stands_before_an_answer_in_its_line_counts() -> None:
    answer = AnswerText(20, column=5)
    texts = [*answer.add("one two three four five six"), *answer.end()]
    assert "".join(text.plain for text in texts) == "one two three\nfour five six\n"


def test_only_prose_continues_a_line() -> None:
    following = ["- item", "```sh", "# title", "| cell |", "    code"]
    text, lines = "one two three four five\n{}\n", "one two three four\nfive\n{}\n"
    found = {each: shown(text.format(each), 20) for each in following}
    assert found == {each: lines.format(each) for each in following}


def test_a_word_is_printed_when_the_next_one_begins() -> None:
    answer = AnswerText(80)
    assert [text.plain for text in answer.add("Hello wor")] == ["Hello"]
    assert [text.plain for text in answer.add("ld and")] == [" world"]
    assert [text.plain for text in answer.end()] == [" and", "\n"]


def test_code_is_highlighted_across_lines_and_reasoning_dim() -> None:
    assert "bright" not in " ".join(styles("plain text\n"))
    inside = '```python\nx = """\ndef f\n"""\n```\n'
    outside = "```python\nx = 1\ndef f\n```\n"
    assert len(styles(inside)) < len(styles(outside)) + 3
    assert styles(inside) != styles(outside)
    code = '```python\nx = """\nimport os\nimport os\n"""\nimport os\n```\n'
    texts = list(AnswerText(80).add(code))
    lines = [(text.plain, {str(span.style) for span in text.spans}) for text in texts]
    assert lines[2] == lines[3]
    assert lines[2][0] == lines[5][0] == "import os\n"
    assert lines[2][1] != lines[5][1]
    assert shown("<think>hm, well</think>\nYes.") == "hm, well\nYes.\n"
    assert "dim italic" in styles("<think>hm</think> Yes.")


@pytest.mark.parametrize(("first", "line"), [("", "x = f(1)"), ('"""', "text"), ("", "# note")])
def test_the_work_for_a_block_grows_with_its_length(first: str, line: str) -> None:
    def count_calls(lines: int) -> int:
        calls = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        answer = AnswerText(80)
        list(answer.add(f"```python\n{first}\n"))
        sys.setprofile(count)
        try:
            for _ in range(lines):
                list(answer.add(f"{line}\n"))
        finally:
            sys.setprofile(None)
        return calls

    count_calls(1)  # fills caches
    assert count_calls(80) < 2.5 * count_calls(40)


def test_characters_that_would_change_what_is_seen_are_shown() -> None:
    hidden = "\x1b\x00\x9b\u202e\u2066\u200f\x7f"
    text, seen = "a{}b\n```sh\nx{}y\n```\n", "a\ufffdb\n```sh\nx\ufffdy\n```\n"
    faults = [
        repr(each)
        for each in hidden
        if visible(f"a{each}b") != "a\ufffdb" or shown(text.format(each, each)) != seen
    ]
    assert faults == []
