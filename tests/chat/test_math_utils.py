"""Answers to problems of mathematics. The values are those of AutoGen 0.2.40."""

from __future__ import annotations

from typing import Any

from cellblock.chat.math_utils import (
    eval_math_responses,
    get_answer,
    is_equiv,
    last_boxed_only_string,
    remove_boxed,
    voting_counts,
)

SAME = [
    *[("1/2", "\\frac12"), ("0.5", "\\frac{1}{2}"), ("x = 5", "5"), ("5\\text{ cm}", "5")],
    *[("\\sqrt3", "\\sqrt{3}"), ("\\dfrac1{72}", "\\frac{1}{72}"), ("90^\\circ", "90")],
    *[("\\$10", "10"), ("50\\%", "50"), (".5", "\\frac12"), ("3 .5", "3 0.5"), ("", "")],
    *[("\\left(1,2\\right)", "(1, 2)"), ("\\frac{1}{2}", "\\frac12"), (None, None)],
]
OTHER = [("2", "3"), (None, "3"), ("3", None), ("-1/2", "-\\frac12"), ("xyz=4", "4")]
# A text -> its last box, and the answer in it.
BOXES = {
    "a \\boxed{1} b \\boxed{\\frac{1}{2}} c": ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    "x}\\boxed{a{b}c}}": ("\\boxed{a{b}c}", "a{b}c"),
    "\\fbox{3}": ("\\fbox{3}", None),
    "\\boxed{1": (None, None),
    "\\boxed 5": (None, None),
    "none": (None, None),
}


def test_answers_are_found_and_compared() -> None:
    assert [pair for pair in SAME if is_equiv(*pair) != 1.0] == []
    assert [pair for pair in OTHER if is_equiv(*pair) != 0.0] == []
    assert {text: (last_boxed_only_string(text), get_answer(text)) for text in BOXES} == BOXES
    assert (get_answer(None), remove_boxed("x")) == (None, None)


def test_responses_vote() -> None:
    responses = ["\\boxed{1/2}", "\\boxed{2}", "\\boxed{\\frac12}", "?"]
    assert voting_counts(responses) == {0: 2, 1: 1}
    chosen: dict[str, Any] = {"voted_answer": "\\boxed{1/2}", "votes": 2}
    right = {"expected_success": 0.9375, "success": True, "success_vote": 1.0}
    wrong = {"expected_success": 0.0, "success": False, "success_vote": 0.0}
    nothing = {**wrong, "voted_answer": None, "votes": 0}
    assert eval_math_responses(responses, "\\boxed{0.5}") == {**right, **chosen}
    assert eval_math_responses(responses) == {**wrong, **chosen}
    assert eval_math_responses([]) == nothing
    assert eval_math_responses(["?"], "\\boxed{1}") == {**nothing, "voted_answer": "?"}
