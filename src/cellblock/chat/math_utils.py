"""Answers of models to problems of mathematics: find them, compare them, vote. AutoGen 0.2's names.

Answers are LaTeX in `\\boxed{…}`, as in the MATH data set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_BOXED = "\\boxed{"
# What makes no difference. The order matters: the last patterns see what the first have left.
_NORMAL_FORM: tuple[tuple[str, str], ...] = (
    (r"\n|\\!|\\\$|\^\{\\circ\}|\^\\circ|\\left|\\right", ""),
    (r"\\\\", r"\\"),
    (r"[td]frac", "frac"),
    (r"\\text\{ .*", ""),  # a unit
    (r"\\?%", ""),
    (r"(^|[ {])\.", r"\g<1>0."),
    (r"^[^=]{0,2}=([^=]*)$", r"\1"),  # x=5
    (r" ", ""),
    (r"\\sqrt(?!\{)(.)", r"\\sqrt{\1}"),
    (r"\\frac(?!\{)(.)", r"\\frac{\1}"),
    (r"(\\frac\{[^{}]*\})(?!\{)(.)", r"\1{\2}"),
    (r"^0\.5$", r"\\frac{1}{2}"),
    (r"^(-?\d+)/(-?\d+)$", r"\\frac{\1}{\2}"),
)


def last_boxed_only_string(string: str) -> str | None:
    r"""Return the last `\boxed{…}` or else `\fbox{…}`; None if it is not closed."""
    start = string.rfind("\\boxed")
    if start < 0:
        start = string.rfind("\\fbox")
    depth = 0
    for end, character in enumerate(string[start:] if start >= 0 else "", start + 1):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "}" and depth == 0:
            return string[start:end]
    return None


def remove_boxed(string: str) -> str | None:
    r"""Return what is in the `\boxed{…}` that `string` is; None for another text."""
    is_boxed = string.startswith(_BOXED) and string.endswith("}")
    return string[len(_BOXED) : -1] if is_boxed else None


def get_answer(solution: str | None) -> str | None:
    """Return the answer in `solution`, or None."""
    boxed = None if solution is None else last_boxed_only_string(solution)
    return None if boxed is None else remove_boxed(boxed)


def is_equiv(str1: str | None, str2: str | None) -> float:
    """Return 1.0 if two answers differ only in units, spaces and how LaTeX is written, else 0.0."""
    if str1 is None or str2 is None:
        return float(str1 is str2)
    return float(_normal_form(str1) == _normal_form(str2))


def is_equiv_chain_of_thought(str1: str | None, str2: str | None) -> float:
    """Compare the answers in two solutions; see `is_equiv`."""
    return is_equiv(get_answer(str1), get_answer(str2))


def voting_counts(responses: Sequence[str]) -> dict[int, int]:
    """Return how many of `responses` have the same answer, by the index of the first of them."""
    votes: dict[int, int] = {}
    for index, response in enumerate(responses):
        if get_answer(response) is not None:
            same = (each for each in votes if is_equiv_chain_of_thought(responses[each], response))
            first = next(same, index)
            votes[first] = votes.get(first, 0) + 1
    return votes


def eval_math_responses(
    responses: Sequence[str], solution: str | None = None, **_: Any
) -> dict[str, float | str | None]:
    """Return the response with most votes, and whether it and any other has the right answer.

    `expected_success` is the probability that one of as many random choices is right.
    """
    count = len(responses)
    right = [] if solution is None else [is_equiv_chain_of_thought(r, solution) for r in responses]
    votes = voting_counts(responses)
    best = max(votes, key=lambda index: votes[index], default=0)
    return {
        "expected_success": 1 - pow(1 - sum(right) / count, count) if count else 0,
        "success": any(right),
        "success_vote": is_equiv_chain_of_thought(responses[best], solution) if count else 0,
        "voted_answer": responses[best] if count else None,
        "votes": votes.get(best, 0),
    }


def _normal_form(answer: str) -> str:
    for pattern, replacement in _NORMAL_FORM:
        answer = re.sub(pattern, replacement, answer)
    return answer
