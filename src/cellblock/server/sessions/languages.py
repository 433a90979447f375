"""Which languages run in sessions."""

from __future__ import annotations

from collections.abc import Iterable

from ...languages import LANGUAGES, find_language
from ..refusals import InvalidRequest

RUNNABLE = tuple(each.name for each in LANGUAGES if each.policy == "execute")


def check_language(tag: str) -> None:
    """Raise `InvalidRequest` unless code in the language runs.

    Executors save the blocks of other languages or ignore them, which would look like success.
    """
    language = find_language(tag)
    if language is None or language.name not in RUNNABLE:
        raise refuse_language(tag, RUNNABLE)


def refuse_language(tag: str, allowed: Iterable[str]) -> InvalidRequest:
    """Return the error for a language that does not run."""
    return InvalidRequest(
        f"The language {tag[:64]!r} does not run here. Use one of: {', '.join(allowed)}."
    )
